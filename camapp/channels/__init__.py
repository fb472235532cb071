"""What the channels of one layer show of one picture: taken, ranked, counted and laid on the picture."""

from camapp.channels.maps import ChannelMaps, Histogram
from camapp.channels.ranking import RANKINGS, Ranking
from camapp.channels.taking import channel_maps

__all__ = ["RANKINGS", "ChannelMaps", "Histogram", "Ranking", "channel_maps"]
