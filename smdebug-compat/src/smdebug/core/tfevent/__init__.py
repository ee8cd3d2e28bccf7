"""Insides of FileWriter and FileReader."""
