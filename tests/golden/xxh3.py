"""XXH3-64, seed 0, from its specification: so that golden files need no compiled package."""
import struct

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_M = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def _u32(b, at):
    return struct.unpack_from("<I", b, at)[0]


def _u64(b, at):
    return struct.unpack_from("<Q", b, at)[0]


def _fold(a, b):
    product = a * b
    return (product ^ (product >> 64)) & _M


def _swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def _avalanche(h):
    h ^= h >> 37
    h = h * _MX1 & _M
    return h ^ h >> 32


def _avalanche64(h):
    h ^= h >> 33
    h = h * _P64_2 & _M
    h ^= h >> 29
    h = h * _P64_3 & _M
    return h ^ h >> 32


def _short(d):
    n = len(d)
    if n == 0:
        return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))
    if n <= 3:
        combined = d[0] << 16 | d[n >> 1] << 24 | d[n - 1] | n << 8
        return _avalanche64(combined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    if n <= 8:
        flip = _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        h = (_u32(d, n - 4) + (_u32(d, 0) << 32)) ^ flip
        rotate = lambda x, r: (x << r | x >> (64 - r)) & _M
        h ^= rotate(h, 49) ^ rotate(h, 24)
        h = h * _MX2 & _M
        h ^= (h >> 35) + n
        h = h * _MX2 & _M
        return h ^ h >> 28
    low = _u64(d, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
    high = _u64(d, n - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
    return _avalanche((n + _swap64(low) + high + _fold(low, high)) & _M)


def _mix16(d, at, secret_at):
    return _fold(_u64(d, at) ^ _u64(_SECRET, secret_at), _u64(d, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _middle(d):
    n = len(d)
    h = n * _P64_1
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += _mix16(d, 16 * i, 32 * i) + _mix16(d, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(h & _M)
    for i in range(8):
        h += _mix16(d, 16 * i, 16 * i)
    h = _avalanche(h & _M)
    for i in range(8, n // 16):
        h += _mix16(d, 16 * i, 16 * (i - 8) + 3)
    h += _mix16(d, n - 16, 136 - 17)
    return _avalanche(h & _M)


def _stripe(acc, d, at, secret_at):
    for i in range(8):
        value = _u64(d, at + 8 * i)
        key = value ^ _u64(_SECRET, secret_at + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & _M
        acc[i] = (acc[i] + (key & 0xFFFFFFFF) * (key >> 32)) & _M


def _long(d):
    n = len(d)
    acc = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    per_block = (192 - 64) // 8
    blocks = (n - 1) // (64 * per_block)
    for block in range(blocks):
        for s in range(per_block):
            _stripe(acc, d, 64 * (block * per_block + s), 8 * s)
        for i in range(8):
            a = acc[i] ^ acc[i] >> 47 ^ _u64(_SECRET, 192 - 64 + 8 * i)
            acc[i] = a * _P32_1 & _M
    for s in range((n - 1 - 64 * per_block * blocks) // 64):
        _stripe(acc, d, 64 * (blocks * per_block + s), 8 * s)
    _stripe(acc, d, n - 64, 192 - 64 - 7)
    h = n * _P64_1
    for i in range(4):
        h += _fold(acc[2 * i] ^ _u64(_SECRET, 11 + 16 * i), acc[2 * i + 1] ^ _u64(_SECRET, 19 + 16 * i))
    return _avalanche(h & _M)


def xxh3_64(data: bytes) -> int:
    data = bytes(data)
    if len(data) <= 16:
        return _short(data)
    return _middle(data) if len(data) <= 240 else _long(data)
