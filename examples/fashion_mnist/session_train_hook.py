"""session_train.py with the hook of smdebug's users: the script itself says what is saved.

    pip install tdbg-smdebug
    python session_train_hook.py --out-dir runs/hook --steps 300

Needs no `tdbg run`; under it the run is the launcher's, and what the hook says is saved is saved.
"""

import argparse

import tensorflow.compat.v1 as tf
from session_train import DATA, build, load
from smdebug.tensorflow import SaveConfig, SessionHook, modes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out-dir", required=True, help="the run directory")
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--steps", type=int, default=937, help="how many batches of 64 images to train on")
    parser.add_argument("--data", default=DATA, help="folder with the four IDX files (default: %(default)s)")
    arguments = parser.parse_args()

    x, y = load(arguments.data, "train", 64 * arguments.steps)
    test = load(arguments.data, "t10k", 1000)
    hook = SessionHook(arguments.out_dir, include_collections=["weights", "gradients"],
                       save_config=SaveConfig(save_interval=arguments.save_interval))
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        images, labels, loss, accuracy, optimizer = build(0.05)
        optimizer = hook.wrap_optimizer(optimizer)
        train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
            hook.set_mode(modes.TRAIN)
            for k in range(0, len(x), 64):
                session.run(train, {images: x[k:k + 64], labels: y[k:k + 64]})
            hook.set_mode(modes.EVAL)
            print("test: loss {:.4f}, accuracy {:.3f}".format(*session.run([loss, accuracy], dict(zip((images, labels), test)))))


if __name__ == "__main__":
    main()
