"""What pullback found, and every way to print it. Standard library only."""

from .clean import clean as clean
from .finding import JSON as JSON
from .finding import CheckRun as CheckRun
from .finding import Edit as Edit
from .finding import Evidence as Evidence
from .finding import Finding as Finding
from .finding import Location as Location
from .finding import Severity as Severity
from .finding import Status as Status
from .report import CheckFailed as CheckFailed
from .report import Report as Report
