"""The release file: its entries, the tables it asks for, drafts of it, its mistakes."""
