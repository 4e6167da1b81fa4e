"""The numbers of the paper (arXiv:1907.05550), read off its figures."""

FRACTIONS = {  # Fig. 3: fresh examples at e = 2 as a fraction of the baseline's
    "ResNet-32, CIFAR-10": {"batch": 0.848, "after": 0.657, "before": 0.576},
    "ResNet-50, ImageNet": {"batch": 1.05, "after": 0.824, "before": 0.515},
    "SSD, COCO": {"batch": 0.873, "after": 0.664, "before": 0.537},
    "Transformer, LM1B": {"batch": 0.684, "before": 0.516},
    "Transformer, Common Crawl": {"batch": 0.584, "before": 0.581},
}
SPEEDUPS = {1: 1.0, 2: 1.80, 3: 2.43, 4: 3.06, 5: 3.25}  # Fig. 4, R about 6
REDUCTIONS = {1: 1.0, 2: 1.90, 3: 2.72, 4: 3.72, 5: 4.11}  # the same runs' fresh examples
UPPER_BOUND = {  # Fig. 5: reductions by e, at batch sizes of 1024 and four times that
    1: {1: 1.0, 2: 1.94, 4: 3.20, 8: 2.88, 16: 2.55},
    4: {1: 1.0, 2: 1.77, 4: 3.44, 8: 5.24, 16: 5.72},
}
BATCH_SIZES = {  # Fig. 6: fractions at e = 2, by batch size as a multiple of 1024
    "batch": {1 / 16: 0.983, 1 / 4: 0.863, 1: 0.684, 4: 0.607},
    "before": {1 / 16: 0.565, 1 / 4: 0.545, 1: 0.517, 4: 0.564},
}
BUFFERS = {  # Fig. 7: fractions at e = 2, by shuffle buffer in batches of 1024
    "batch": {1: 0.684, 10: 0.655, 100: 0.576},
    "before": {98: 0.602, 977: 0.516, 9766: 0.510},
}
