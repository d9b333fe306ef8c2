"""Kernel ridge classification of handwritten digits: scikit-learn's 1797 images of 8 x 8 pixels.

With training images X and one column of targets per class, Y in {-1, +1}, kernel ridge regression solves

    (K + lambda I) W = Y,     K[i, j] = exp(-gamma ||x_i - x_j||^2),

and gives a new image the class whose score k(x, X) W is largest. K is symmetric positive definite, so a Cholesky factorisation
solves for all classes at once, and its factor serves as many lambdas or targets as one likes.

    pypto run -n 2 examples/digits_kernel_ridge.py
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pypto


def kernel(x, y, gamma):
    """Return exp(-gamma ||x_i - y_j||^2) for all pairs of rows, from ||x - y||^2 = ||x||^2 + ||y||^2 - 2 x.y."""
    squares = pypto.sum(x * x, axis=1)[:, None] + pypto.sum(y * y, axis=1)[None, :]
    return pypto.exp(-gamma * pypto.clip(squares - 2 * (x @ y.T), min=0))


def main():
    """Train, and print the accuracy on both sets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gamma", type=float, default=0.1)
    parser.add_argument("--ridge", type=float, default=1e-3, help="lambda")
    options = parser.parse_args()

    ctx = pypto.init()
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(images / 16, labels, test_size=0.3, random_state=0)
    targets = np.where(train_labels[:, None] == np.arange(10), 1.0, -1.0)

    x, z = pypto.asarray(train), pypto.asarray(test)
    k = kernel(x, x, options.gamma)
    factor = pypto.linalg.cho_factor(k + options.ridge * pypto.eye(len(x)))
    weights = pypto.linalg.cho_solve(factor, targets)
    residual = pypto.linalg.norm(k @ weights + options.ridge * weights - targets) / np.linalg.norm(targets)

    fitted = pypto.argmax(k @ weights, axis=1)
    predicted = pypto.argmax(kernel(z, x, options.gamma) @ weights, axis=1)
    pypto.compute(fitted, predicted, residual)
    train_accuracy = float(pypto.mean(fitted == train_labels))
    test_accuracy = float(pypto.mean(predicted == test_labels))
    relative = float(residual)
    if ctx.rank == 0:
        print(f"{ctx.size} device(s), {len(x)} training and {len(z)} test images, system of order {len(x)}")
        print(f"relative residual  {relative:.1e}")
        print(f"training accuracy  {train_accuracy:.4f}")
        print(f"test accuracy      {test_accuracy:.4f}")


if __name__ == "__main__":
    main()
