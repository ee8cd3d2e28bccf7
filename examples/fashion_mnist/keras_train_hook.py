"""keras_train.py with the hook of smdebug's users: the script itself says what is saved.

    pip install tdbg-smdebug
    python keras_train_hook.py --out-dir runs/hook --steps 300

Needs no `tdbg run`; under it the run is the launcher's, and what the hook says is saved is saved.
"""

import argparse

import keras
from keras_train import PLACES, load, make_model
from smdebug.tensorflow import KerasHook, SaveConfig


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out-dir", required=True, help="the run directory")
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--steps", type=int, default=937, help="how many batches of 64 images to train on")
    parser.add_argument("--data", default=PLACES[0], help="folder with the four IDX files (default: %(default)s)")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    images, labels = load(arguments.data, "train")
    count = arguments.steps * 64
    test = tuple(part[:1000] for part in load(arguments.data, "t10k"))
    model = make_model()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])

    hook = KerasHook(arguments.out_dir, include_collections=["weights", "gradients"],
                     save_config=SaveConfig(save_interval=arguments.save_interval))
    model.fit(images[:count], labels[:count], batch_size=64, validation_data=test, validation_batch_size=250, verbose=2,
              callbacks=[hook])


if __name__ == "__main__":
    main()
