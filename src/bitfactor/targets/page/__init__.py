"""Networks in a web page: the core as WebAssembly, a module for it, and a page."""

from bitfactor.targets.page.write import PACKAGE, Page, write_page

__all__ = ["PACKAGE", "Page", "write_page"]
