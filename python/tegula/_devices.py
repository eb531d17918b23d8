"""Functions for devices."""

from __future__ import annotations

from . import _tegula


def synchronize(device: int = 0) -> None:
    """Waits for all work of a CUDA device and raises the errors of its kernels since the last call.

    The synchronisation of another library also waits, but does not report what failed, such as a sequence longer than
    promised by ``max_seqlen_q`` or ``max_seqlen_k``.

    Args:
        device: number of the device.

    Returns:
        None.

    Raises:
        ValueError: there is no such device. RuntimeError: a kernel failed, or there is no driver.

    Source: as ``cuCtxSynchronize`` of the CUDA driver.
    """
    _tegula.synchronize(device)
