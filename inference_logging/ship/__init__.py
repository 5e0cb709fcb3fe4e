"""`inference-logging ship`: reads segments at its own pace and sends their records to another machine, at least once.

`source` reads and remembers its position, `shipper` goes round, and each kind of destination is a file of its own.
Nothing here touches a queue: a destination that is slow or gone delays only the removal of segments.

Internal, with all modules of this folder: users import nothing from here.
"""

from inference_logging.ship.shipper import Shipper
from inference_logging.ship.source import Source
from inference_logging.ship.sources import Sources

__all__ = ["Shipper", "Source", "Sources"]
