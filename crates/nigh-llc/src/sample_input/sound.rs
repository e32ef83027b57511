//! A sound: chords that follow each other, over a little noise, as a WAV (RIFF) of 16 bits and two channels.

use std::f64::consts::TAU;

use rand::Rng;

const RATE: u32 = 44_100;
const CHANNELS: u16 = 2;
const FRAME_BYTES: u16 = CHANNELS * 2;
const HEAD_BYTES: usize = 44;
/// The part of a file's length that its head leaves out.
const RIFF_HEAD_BYTES: u32 = 8;
/// Frames that a chord lasts.
const CHORD: usize = RATE as usize / 2;
const TONES: usize = 3;

/// A sound of about `bytes` bytes: whole frames.
pub(super) fn wav(bytes: usize, random: &mut impl Rng) -> Vec<u8> {
    let frames = bytes.saturating_sub(HEAD_BYTES) / usize::from(FRAME_BYTES);
    let data_bytes = (frames * usize::from(FRAME_BYTES)) as u32;
    let mut file = Vec::with_capacity(bytes);
    file.extend(b"RIFF");
    file.extend((data_bytes + HEAD_BYTES as u32 - RIFF_HEAD_BYTES).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // Plain samples.
    file.extend(1_u16.to_le_bytes());
    file.extend(CHANNELS.to_le_bytes());
    file.extend(RATE.to_le_bytes());
    file.extend((RATE * u32::from(FRAME_BYTES)).to_le_bytes());
    file.extend(FRAME_BYTES.to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend(b"data");
    file.extend(data_bytes.to_le_bytes());
    let mut hertz = [0.0; TONES];
    for frame in 0..frames {
        if frame % CHORD == 0 {
            hertz = [(); TONES].map(|()| random.random_range(110.0..880.0));
        }
        let seconds = frame as f64 / f64::from(RATE);
        let chord: f64 = hertz.iter().map(|hertz| (TAU * hertz * seconds).sin()).sum();
        for side in [0.9, 1.1] {
            let sample = chord * 6_000.0 * side + random.random_range(-400.0..400.0);
            file.extend((sample as i16).to_le_bytes());
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_sound_is_as_long_as_its_head_says() {
        let file = wav(100_003, &mut StdRng::seed_from_u64(1));
        assert_eq!(file.len(), 100_000);
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((&file[..4], number(4), &file[8..16]), (&b"RIFF"[..], 99_992, &b"WAVEfmt "[..]));
        assert_eq!((number(24), number(28), number(40)), (44_100, 176_400, 99_956));
        let loud = file[HEAD_BYTES..].chunks_exact(2).any(|sample| i16::from_le_bytes([sample[0], sample[1]]) > 9_000);
        assert!(loud);
    }
}
