"""Prints the scalars of a folder's event files, one "STEP TAG VALUE" a line, as TensorBoard would show them:
    read_events.py DIR                 by a reader of its own
    read_events.py --tensorboard DIR   by TensorBoard's; exit status 77 where it is not installed"""
import os
import struct
import sys


def checksum(data):
    """CRC-32C, bit by bit, masked as in TFRecords."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """Every record of a file; one that is not whole ends it, as a killed run leaves it."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 12 <= len(data):
        length, of_length = struct.unpack_from("<QI", data, at)
        assert checksum(data[at:at + 8]) == of_length, f"{path}: wrong checksum of the length at {at}"
        record = data[at + 12:at + 12 + length]
        if at + 16 + length > len(data):
            return
        assert checksum(record) == struct.unpack_from("<I", data, at + 12 + length)[0], f"{path}: checksum at {at}"
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of each field of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            value, at = struct.unpack_from(form, data, at)[0], at + size
        assert at <= len(data), "a field ends past its message"
        yield key >> 3, value


def read(folder):
    scalars = []  # (step, tag, value)
    # Beside them may be the lock of a killed run.
    for name in sorted(n for n in os.listdir(folder) if n.startswith("events.out.")):
        for i, record in enumerate(records(os.path.join(folder, name))):
            event = dict(fields(record))
            assert event[1] > 1e9, f"{name}: no wall time"
            step = event.get(2, 0)
            if i == 0:
                assert event[3] == b"brain.Event:2", f"{name}: no version"
            if 7 in event and dict(fields(event[7]))[1] == 1:  # a session's start: what comes after is void
                scalars = [s for s in scalars if s[0] < step]
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                parts = dict(fields(value))
                scalars.append((step, parts[1].decode(), parts[2]))
    return scalars


def read_with_tensorboard(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        sys.exit(77)
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return [(e.step, tag, e.value) for tag in events.Tags()["scalars"] for e in events.Scalars(tag)]


if __name__ == "__main__":
    found = read_with_tensorboard(sys.argv[2]) if sys.argv[1] == "--tensorboard" else read(sys.argv[1])
    for step, tag, value in sorted(found):
        print(step, tag, f"{value:.6g}")
