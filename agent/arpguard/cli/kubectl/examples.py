"""The examples at the end of each command's help."""

EXAMPLES = {
    "status": """examples:
  kubectl arpguard status
  kubectl arpguard status --context production -n arpguard
""",
    "vips": """examples:
  kubectl arpguard vips
  kubectl arpguard vips 192.0.2.10
  kubectl arpguard vips --kind owned -o json
""",
    "explain": """examples:
  kubectl arpguard explain 192.0.2.10
  kubectl arpguard explain 192.0.2.10 --node worker-1
""",
    "decisions": """examples:
  kubectl arpguard decisions --since 5m --vip 192.0.2.10
  kubectl arpguard decisions --follow --verdict suppress
  kubectl arpguard decisions --follow -o json | jq -r '.decision.sha'
""",
    "conflicts": """examples:
  kubectl arpguard conflicts
  kubectl arpguard conflicts --vip 192.0.2.10 -o yaml
""",
    "audit": """examples:
  kubectl arpguard audit
  kubectl arpguard audit 192.0.2.10
""",
    "watch": """examples:
  kubectl arpguard watch
  kubectl arpguard watch --node worker-1 --node worker-2 --interval 5
""",
    "doctor": """examples:
  kubectl arpguard doctor
  kubectl arpguard doctor --node worker-1 -o json
""",
    "mode": """examples:
  kubectl arpguard mode enforce
  kubectl arpguard mode observe --context staging
""",
    "bundle": """examples:
  kubectl arpguard bundle
  kubectl arpguard bundle support.tar.gz --node worker-1
""",
    "uninstall": """examples:
  kubectl arpguard uninstall
""",
    "completion": """examples:
  kubectl arpguard completion bash
""",
}
