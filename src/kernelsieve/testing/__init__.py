"""Tests for feature maps of your own: the battery that every map of this library passes.

``check_feature_map(make)`` runs it by a call. ``FeatureMapBattery`` is a base class for pytest,
with one test for each promise.

Examples
--------
>>> from kernelsieve.testing import check_feature_map, FeatureMapBattery
"""

from kernelsieve.testing.battery import FeatureMapBattery
from kernelsieve.testing.check import check_feature_map

__all__ = ["FeatureMapBattery", "check_feature_map"]
