"""Ask a posterior about photos of your own, and see which ones it is unsure of.

    python examples/own_photos.py my-photos/ --posterior results/posteriors/FILE

Without --posterior it samples one from a coreset that came with the package (--coreset), which
takes seconds on a GPU and some minutes on a CPU.
"""

import argparse
from math import log
from pathlib import Path

from matplotlib import pyplot
from PIL import Image

import pseudocoreset as pc

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("photos", type=Path, help="a folder of image files")
parser.add_argument("--posterior", type=Path, help="what `pseudocoreset sample` wrote")
parser.add_argument("--coreset", default="cifar10-10", help="NAME-IPC of the gallery")
parser.add_argument("--picture", type=Path, default=Path("photos.png"), help="a file to draw")
options = parser.parse_args()

if options.posterior is not None:
    posterior = pc.Posterior.load(options.posterior)
else:
    name, _, ipc = options.coreset.rpartition("-")
    posterior = pc.sample(pc.load(name, ipc=int(ipc)))

found = [
    (Path(name), prediction.probs[place], prediction.entropy[place], share)
    for names, prediction in posterior.predict_files([options.photos])
    for place, (name, share) in enumerate(zip(names, prediction.mutual_information, strict=True))
]

# The least sure first. Entropy is the whole uncertainty, from 0 to the logarithm of the number of
# classes. Mutual information is the part of it that comes from not knowing the network: it is high
# for photos unlike the images that the posterior was made of.
found.sort(key=lambda row: -row[2])
half = log(len(posterior.class_names)) / 2
print("photo, class, probability, entropy, mutual information")
for path, probs, entropy, information in found:
    label = posterior.class_names[probs.argmax()]
    doubt = ", unsure" if entropy > half else ""
    print(f"{path.name}, {label}, {probs.max():.2f}, {entropy:.2f}, {information:.2f}{doubt}")

# Four of the least and four of the most sure, each above its probabilities.
shown = found if len(found) <= 8 else found[:4] + found[-4:]
figure, axes = pyplot.subplots(2, len(shown), figsize=(1.8 * len(shown), 4), squeeze=False)
for (path, probs, entropy, _), above, below in zip(shown, *axes, strict=True):
    above.imshow(Image.open(path).convert("RGB"))
    above.set_axis_off()
    above.set_title(f"{path.name}\nentropy {entropy:.2f}", fontsize=8)
    below.barh(range(len(probs)), probs.numpy())
    below.set_yticks(range(len(probs)), posterior.class_names, fontsize=6)
    below.set_xlim(0, 1)
figure.tight_layout()
figure.savefig(options.picture, dpi=120)
print(f"{options.picture}: drawn")
