"""Kernel methods on any feature map."""

from kernelsieve.models.kernel_ridge import KernelRidge

__all__ = ["KernelRidge"]
