"""Surrogates: functions whose derivative is zero almost everywhere, with a declared gradient in its place."""
