"""What one does with the result of a search: name roles, compare, transfer, look at single examples."""

from cel_lens.analysis.roles import HeadRole, HeadRoles, Role, find_critical_heads, head_roles

__all__ = ["HeadRole", "HeadRoles", "Role", "find_critical_heads", "head_roles"]
