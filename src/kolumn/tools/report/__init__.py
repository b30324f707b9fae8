"""tools.report"""
