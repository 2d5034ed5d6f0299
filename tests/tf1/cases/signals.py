"""Fourier and cosine transforms, frames, windows."""

from .case import case, floats
from .families import function

for _name in ("fft", "ifft", "fft2d", "ifft2d", "fft3d", "ifft3d"):
    _shape = {"": (2, 4), "2": (2, 4, 3), "3": (2, 3, 2)}[_name.replace("i", "")[3:4]]
    case(
        _name,
        lambda tf, x, y, f=_name: function(tf, f)(tf.complex(x, y)),
        x=floats(*_shape),
        y=floats(*_shape, salt=1),
        gradients=False,
    )
    case(
        "signal." + _name,
        lambda tf, x, y, f=_name: getattr(tf.signal, f)(tf.complex(x, y)),
        x=floats(*_shape),
        y=floats(*_shape, salt=1),
        gradients=False,
    )
for _name, _shape in (("rfft", (2, 6)), ("rfft2d", (2, 4, 6)), ("rfft3d", (2, 4, 6))):
    for _space in ("signal.", "spectral."):
        case(
            _space + _name,
            lambda tf, x, f=_space + _name: tf.abs(function(tf, f)(x)),
            x=floats(*_shape),
            gradients=_name == "rfft",
        )
        case(
            _space + "i" + _name,
            lambda tf, x, y, f=_space + "i" + _name: function(tf, f)(tf.complex(x, y)),
            x=floats(*_shape),
            y=floats(*_shape, salt=1),
            gradients=False,
        )
case("signal.rfft", lambda tf, x: tf.abs(tf.signal.rfft(x, [4])), "length", x=floats(2, 6), gradients=False)
case("signal.rfft", lambda tf, x: tf.abs(tf.signal.rfft(x, fft_length=[8])), "longer", x=floats(2, 6), gradients=False)
for _type in (1, 2, 3):
    case(
        "signal.dct", lambda tf, x, t=_type: tf.signal.dct(x, type=t), "type_%d" % _type, x=floats(2, 6), tolerance=1e-4
    )
case("signal.dct", lambda tf, x: tf.signal.dct(x, norm="ortho"), "ortho", x=floats(2, 6), tolerance=1e-4)
case("signal.idct", lambda tf, x: tf.signal.idct(x), x=floats(2, 6), tolerance=1e-4)
case("spectral.dct", lambda tf, x: tf.spectral.dct(x), x=floats(2, 6), tolerance=1e-4)
for _name in ("hann_window", "hamming_window"):
    case("signal." + _name, lambda tf, f=_name: getattr(tf.signal, f)(7))
    case("signal." + _name, lambda tf, f=_name: getattr(tf.signal, f)(8, periodic=False), "symmetric")
case("signal.frame", lambda tf, x: tf.signal.frame(x, 4, 2), x=floats(2, 9))
case("signal.frame", lambda tf, x: tf.signal.frame(x, 4, 3, pad_end=True), "pad_end", x=floats(9))
case("signal.overlap_and_add", lambda tf, x: tf.signal.overlap_and_add(x, 2), x=floats(3, 4))
case("signal.stft", lambda tf, x: tf.abs(tf.signal.stft(x, 8, 4)), x=floats(2, 20), tolerance=1e-4, gradients=False)
case(
    "signal.stft",
    lambda tf, x: tf.abs(tf.signal.stft(x, 8, 4, fft_length=16, pad_end=True)),
    "pad_end",
    x=floats(20),
    tolerance=1e-4,
    gradients=False,
)
case(
    "signal.inverse_stft",
    lambda tf, x: tf.signal.inverse_stft(tf.signal.stft(x, 8, 4), 8, 4),
    x=floats(20),
    tolerance=1e-4,
    gradients=False,
    shapes=False,
)
case(
    "signal.linear_to_mel_weight_matrix",
    lambda tf: tf.signal.linear_to_mel_weight_matrix(5, 17, 8000.0),
    tolerance=1e-4,
)
case("signal.fftshift", lambda tf, x: tf.signal.fftshift(x), x=floats(4, 5))
case("signal.ifftshift", lambda tf, x: tf.signal.ifftshift(x, axes=[1]), x=floats(4, 5))
