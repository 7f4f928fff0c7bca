"""Make a coreset of a table and hand it to scikit-learn.

    pip install scikit-learn
    python examples/table_to_scikit_learn.py

The table is scikit-learn's breast-cancer data, which come with the package.
"""

import tempfile

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import pseudocoreset as pc

data = pc.load_data("breast-cancer")
with tempfile.TemporaryDirectory() as folder:
    experts = pc.train_experts(data, "mlp", out=folder, num=4, epochs=40, lr=0.05, batch=32)
    coreset = pc.distill(data, experts, ipc=5, steps=50, recipe="tuned")  # has hard labels

# A TensorDataset of scaled rows and their classes; other libraries take its arrays.
X, y = (tensor.numpy() for tensor in coreset.as_dataset().tensors)
X_train, X_test = (data.scaling.apply(split.inputs).numpy() for split in (data.train, data.test))
y_train, y_test = data.train.targets.numpy(), data.test.targets.numpy()

rng = np.random.default_rng(0)
for model in (LogisticRegression(), SVC(), KNeighborsClassifier(3)):
    scores = []
    for _ in range(20):  # as many real rows, drawn at random
        places = [rng.choice(np.flatnonzero(y_train == c), 5, replace=False) for c in (0, 1)]
        few = np.concatenate(places)
        scores.append(model.fit(X_train[few], y_train[few]).score(X_test, y_test))
    synthetic = model.fit(X, y).score(X_test, y_test)
    everything = model.fit(X_train, y_train).score(X_test, y_test)
    print(
        f"{type(model).__name__}: {len(X)} synthetic rows {synthetic:.3f}, {len(X)} real rows "
        f"{np.mean(scores):.3f} ± {np.std(scores):.3f}, all {len(X_train)} rows {everything:.3f}"
    )
