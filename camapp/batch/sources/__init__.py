"""Sources of an export: which inputs there are, whether they changed, and their bytes."""

from camapp.batch.sources.fingerprint import Fingerprint, fingerprint_of
from camapp.batch.sources.listing import Source, list_items
from camapp.batch.sources.reading import Reader
from camapp.batch.sources.tables import Columns

__all__ = ["Columns", "Fingerprint", "Reader", "Source", "fingerprint_of", "list_items"]
