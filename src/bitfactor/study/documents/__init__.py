"""Documents of text, tables and figures, and how they are drawn and written. Knows nothing of models or data.

Call it: `bitfactor.report("runs/a")`, see `bitfactor.api.report.report`.
"""

from bitfactor.room import callable_as
from bitfactor.study.documents.document import Chapter, Document, Figure, Table, facts

__all__ = ["Chapter", "Document", "Figure", "Table", "facts"]

callable_as(__name__, "bitfactor.api.report")
