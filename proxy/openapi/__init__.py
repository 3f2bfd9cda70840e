"""The two ports as OpenAPI 3.1 documents, written from what is served: the allow-list, the error tree, the router.

Plain values for JSON; who hands them out is admin.py. Not here: any judgement of a request, which no document makes.
"""

from proxy.openapi.clients import clients_document
from proxy.openapi.operators import operators_document

__all__ = ["clients_document", "operators_document"]
