"""What concerns devices and no operator."""

from __future__ import annotations

from . import _tegula


def synchronize(device: int = 0) -> None:
    """Waits for all work of a CUDA device, and raises what its kernels have found since the last time.

    The synchronisation of another library waits as well, but does not know what failed: a sequence that is longer
    than ``max_seqlen_q`` or ``max_seqlen_k`` has promised.

    Args:
        device: number of the device.

    Returns:
        None.

    Raises:
        ValueError: there is no such device. RuntimeError: a kernel failed, or there is no driver.

    Source: as ``cuCtxSynchronize`` of the CUDA driver.
    """
    _tegula.synchronize(device)
