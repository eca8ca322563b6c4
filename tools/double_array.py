"""SentencePiece's precompiled_charsmap: a double array (Aoe, 1989) in the form of Darts-clone, and the texts that it leads to."""
import struct


def charsmap(table):
    """The bytes for a dict of texts and their replacements."""
    blob, tree = b"", {}
    for key, to in table.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(blob)
        blob += to.encode() + b"\0"
    units, used = [0] * 256, {0}

    def place(node):
        """Puts the children of a node at base ^ label, and returns the base."""
        labels = [0 if label is None else label for label in node]
        base = 1
        while base in taken or any(base ^ label in used for label in labels):
            base += 1
        taken.add(base)
        used.update(base ^ label for label in labels)
        units.extend([0] * max(0, (base | 255) + 1 - len(units)))
        for label, child in node.items():
            if label is None:
                units[base] = 1 << 31 | child
        for label, child in node.items():
            if label is not None:
                at = base ^ label
                to = place(child)
                units[at] = label | (None in child) << 8 | (at ^ to) << 10
        return base

    taken = set()
    units[0] = place(tree) << 10
    trie = struct.pack("<%dI" % len(units), *units)
    return struct.pack("<I", len(trie)) + trie + blob
