"""The paper's tables and pictures: measured cell by cell, and rendered from what was measured."""
