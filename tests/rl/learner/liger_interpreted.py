"""Liger's kernels by Triton's interpreter, on a CPU, against the plain layers; takes no arguments.

The interpreter lacks two things of the kernels: scalars with a type, and CUDA's square root.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import liger_kernel.ops.rms_norm
import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.runtime.interpreter import TensorHandle

from rl.learner.fused import fuse_layers
from tests.rl.learner.same_learning import assert_same, learnt, random_model

with_integers = interpreter._implicit_cvt


def with_floats(value):
    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
    return with_integers(value)


def main():
    interpreter._implicit_cvt = with_floats
    liger_kernel.ops.rms_norm.rsqrt = lambda value: 1.0 / tl.sqrt(value)
    for kind in ("qwen2", "qwen3"):
        for lora in (False, True):
            for checkpointing in (False, True):
                make = {"lora": lora, "checkpointing": checkpointing}
                other, model = random_model(kind, **make), random_model(kind, **make)
                fuse_layers(model)
                assert "Liger" in model.base_model.layers[0].mlp._get_name() + repr(model.base_model.norm)
                assert_same(learnt(other, [7, 1, 12]), learnt(model, [7, 1, 12]))
                assert_same(learnt(other, [5]), learnt(random_model(kind, **make), [5]))
                print("same", kind, make)


if __name__ == "__main__":
    main()
