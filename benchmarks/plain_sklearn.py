"""What a user of scikit-learn would write for each analysis, on one array of features.

    python benchmarks/plain_sklearn.py VERB FEATURES.npy [LABELS.npy]

The array is (layers, images, C); for places, it is (1, images, places, C).
"""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    verb, features = sys.argv[1], np.load(sys.argv[2])
    if verb == "map":
        from sklearn.decomposition import PCA
        from sklearn.neighbors import NearestNeighbors

        last = features[-1]
        NearestNeighbors(n_neighbors=11, metric="cosine").fit(last).kneighbors(last)
        PCA(2).fit_transform(last)
    elif verb == "probe":
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        labels = np.load(sys.argv[3])
        for layer in features:
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            split = StratifiedKFold(5, shuffle=True, random_state=0)
            cross_val_score(model, layer, labels, cv=split)
    elif verb == "similarity":  # linear CKA of all images by its definition, biased
        centered = [layer - layer.mean(0) for layer in features]
        norms = [np.linalg.norm(layer.T @ layer) for layer in centered]
        for row, one in enumerate(centered):
            for column in range(row + 1, len(centered)):
                np.linalg.norm(one.T @ centered[column]) ** 2 / norms[row] / norms[column]
    else:
        from sklearn.decomposition import PCA

        maps = features[-1]  # (images, places, C)
        PCA(3).fit_transform(maps.reshape(-1, maps.shape[-1]))


if __name__ == "__main__":
    main()
