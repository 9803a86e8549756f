"""Documents of text, tables and figures, drawn and written. Knows nothing of models or data."""

from bitfactor.study.documents.document import Chapter, Document, Figure, Table, facts

__all__ = ["Chapter", "Document", "Figure", "Table", "facts"]
