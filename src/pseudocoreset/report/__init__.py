"""What people look at: tables, figures, the page of a run."""
