"""The manager of hooks: what it records, what it changes, and how it leaves no trace."""

from camapp.hooks.manager.manager import HookManager
from camapp.hooks.manager.norm_clip import NormClip
from camapp.hooks.manager.recordings import Recorded, Recordings
from camapp.hooks.manager.reducers import Histogram, histogram
from camapp.hooks.manager.silence import Silent
from camapp.hooks.manager.storage import Storage

__all__ = ["Histogram", "HookManager", "NormClip", "Recorded", "Recordings", "Silent", "Storage", "histogram"]
