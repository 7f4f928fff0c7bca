"""What the tables of docs/beyond.md show, in words."""

FINDINGS = """\
For CIFAR-10:

- **The form adds the most.** With 10 stored images per class, storing four smaller images in one
  raises one chain from 64.5 to 71.0 %. Learned labels add half a point and lower the NLL from 0.87
  to 0.83. Fixed labels of the experts are worse (0.86).
- **The empirical covariance and a finish add nothing here.** With the same settings, the covariance
  lowers accuracy by two points and takes three times as long. An unrolled finish of 60 updates
  changes less than another seed does.
- **JPEG files are the strongest control.** 9,180 of them with the experts' labels take as many
  bytes as the best coreset of 50 per class at one byte a pixel. One network is as accurate (75.3
  against 75.0 %), but the NLL is worse (0.80 against 0.73) and sampling takes nine times as many
  steps. With fewer bytes, the best coreset is ahead: by 3 points at 10 per class and by 9 at 1.
- **One byte a pixel loses nothing.**
- **The closed-form last layer is worse than SGHMC**, except for VBPC's coresets, which are made for
  it.
- **Another coreset of the same recipe** differs by about a point at 1 per class, and by at most 0.3
  points at 10 and 50.
"""
