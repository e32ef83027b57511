//! The contender: threads that train a dense network (784-1024-10, dropout, momentum) to read digits.
//!
//! Plain loops over `f32`, no library. The weights are shared, a lock a row, and updated as each thread's minibatch is done;
//! each thread keeps velocities of its own, as large as the weights (3 MiB). Dropout leaves half the hidden units out of each
//! minibatch, which spreads the distances after which a row is used again.

use parking_lot::RwLock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::touch::{Region, Touch};

const PIXELS: usize = 28 * 28;
/// Hidden units of the job that experiments run.
pub(super) const HIDDEN: usize = 1024;
const CLASSES: usize = 10;
const MINIBATCH: usize = 8;
/// Bytes of a row of weights; whole lines.
const ROW_BYTES: u64 = (PIXELS * size_of::<f32>()) as u64;
pub(super) const DIGIT_BYTES: u64 = PIXELS as u64;
/// The part of hidden units that a minibatch uses.
const KEPT: f64 = 0.5;
const RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.5;
/// Segments of a seven-segment display by digit.
const SEGMENTS: [u8; CLASSES] = [0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f];

/// Digits in the shape of a seven-segment display, shifted and with noise.
pub(super) struct Digits {
    pixels: Vec<u8>,
    classes: Vec<u8>,
}

impl Digits {
    /// `count` digits; equal seeds give equal digits.
    pub(super) fn made_up(count: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut digits = Self { pixels: Vec::with_capacity(count * PIXELS), classes: Vec::with_capacity(count) };
        for _ in 0..count {
            let class = random.random_range(0..CLASSES);
            let (right, down) = (random.random_range(-2..=2), random.random_range(-2..=2));
            for pixel in 0..PIXELS as i32 {
                let lit = is_lit(SEGMENTS[class], pixel % 28 - right, pixel / 28 - down);
                digits.pixels.push(u8::from(lit) * 190 + random.random_range(0..64));
            }
            digits.classes.push(class as u8);
        }
        digits
    }

    fn count(&self) -> usize {
        self.classes.len()
    }
}

/// Whether a pixel lies on a lit segment; the display spans columns 7 to 20 and rows 3 to 24.
fn is_lit(segments: u8, x: i32, y: i32) -> bool {
    let across = (9..=18).contains(&x);
    let (upper, lower) = ((5..=12).contains(&y), (15..=22).contains(&y));
    let on = [
        across && (3..=5).contains(&y),
        upper && (18..=20).contains(&x),
        lower && (18..=20).contains(&x),
        across && (22..=24).contains(&y),
        lower && (7..=9).contains(&x),
        upper && (7..=9).contains(&x),
        across && (12..=14).contains(&y),
    ];
    on.iter().enumerate().any(|(segment, &on)| on && segments >> segment & 1 == 1)
}

/// The network; threads share it.
pub(super) struct Network {
    /// By hidden unit: its weights of all pixels.
    hidden: Vec<RwLock<Vec<f32>>>,
    /// By class: its weights of all hidden units.
    output: RwLock<Vec<Vec<f32>>>,
}

impl Network {
    pub(super) fn new(hidden: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut weight = |inputs: usize| random.random_range(-1.0..1.0) / (inputs as f32).sqrt();
        Self {
            hidden: (0..hidden).map(|_| RwLock::new((0..PIXELS).map(|_| weight(PIXELS)).collect())).collect(),
            output: RwLock::new((0..CLASSES).map(|_| (0..hidden).map(|_| weight(hidden)).collect()).collect()),
        }
    }

    /// Bytes of all weights between pixels and hidden units; as many are each thread's velocities.
    pub(super) fn weight_bytes(&self) -> u64 {
        self.hidden.len() as u64 * ROW_BYTES
    }
}

pub(super) struct Trainer {
    random: StdRng,
    inputs: Vec<[f32; PIXELS]>,
    velocity: Vec<[f32; PIXELS]>,
    activations: Vec<Vec<f32>>,
    /// What each class's output of each digit should have been less what it was.
    errors: Vec<[f32; CLASSES]>,
}

impl Trainer {
    /// A thread's state; the seed chooses its digits and what it drops.
    pub(super) fn new(network: &Network, seed: u64) -> Self {
        let hidden = network.hidden.len();
        Self {
            random: StdRng::seed_from_u64(seed),
            inputs: vec![[0.0; PIXELS]; MINIBATCH],
            velocity: vec![[0.0; PIXELS]; hidden],
            activations: vec![vec![0.0; hidden]; MINIBATCH],
            errors: vec![[0.0; CLASSES]; MINIBATCH],
        }
    }

    /// Trains on one minibatch; the part of its digits that were read correctly beforehand.
    pub(super) fn step(&mut self, network: &Network, digits: &Digits, touch: &mut impl Touch) -> f64 {
        let mut classes = [0_usize; MINIBATCH];
        for (input, class) in self.inputs.iter_mut().zip(&mut classes) {
            let digit = self.random.random_range(0..digits.count());
            touch.touch(Region::Digits, digit as u64 * DIGIT_BYTES, DIGIT_BYTES, false);
            touch.computed(PIXELS as u64);
            let pixels = &digits.pixels[digit * PIXELS..(digit + 1) * PIXELS];
            for (value, &pixel) in input.iter_mut().zip(pixels) {
                *value = f32::from(pixel) / 255.0;
            }
            *class = usize::from(digits.classes[digit]);
        }
        let kept: Vec<usize> = (0..network.hidden.len()).filter(|_| self.random.random_bool(KEPT)).collect();
        self.forward(network, &kept, touch);
        let correct = self.output(network, &kept, &classes);
        self.backward(network, &kept, touch);
        correct as f64 / MINIBATCH as f64
    }

    /// The hidden units' activations; a row of weights serves all digits of the minibatch while it is near.
    fn forward(&mut self, network: &Network, kept: &[usize], touch: &mut impl Touch) {
        for &unit in kept {
            touch.touch(Region::Weights, unit as u64 * ROW_BYTES, ROW_BYTES, false);
            let row = network.hidden[unit].read();
            for (activation, input) in self.activations.iter_mut().zip(&self.inputs) {
                activation[unit] = dot(&row, input).max(0.0);
            }
            touch.computed((MINIBATCH * PIXELS) as u64);
        }
    }

    /// The errors of the outputs (softmax), and how many digits were read correctly.
    fn output(&mut self, network: &Network, kept: &[usize], classes: &[usize]) -> usize {
        let weights = network.output.read();
        let mut correct = 0;
        for ((activation, errors), &class) in self.activations.iter().zip(&mut self.errors).zip(classes) {
            let outputs: [f32; CLASSES] =
                std::array::from_fn(|class| kept.iter().map(|&unit| weights[class][unit] * activation[unit]).sum());
            let highest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            correct += usize::from(outputs[class] >= highest);
            let powers = outputs.map(|output| (output - highest).exp());
            let sum: f32 = powers.iter().sum();
            *errors = std::array::from_fn(|each| f32::from(u8::from(each == class)) - powers[each] / sum);
        }
        correct
    }

    /// The velocities of all rows, then the weights by them.
    fn backward(&mut self, network: &Network, kept: &[usize], touch: &mut impl Touch) {
        let mut output = network.output.write();
        for &unit in kept {
            touch.touch(Region::Velocity, unit as u64 * ROW_BYTES, ROW_BYTES, true);
            let velocity = &mut self.velocity[unit];
            velocity.iter_mut().for_each(|value| *value *= MOMENTUM);
            for ((activation, errors), input) in self.activations.iter().zip(&self.errors).zip(&self.inputs) {
                if activation[unit] > 0.0 {
                    let error: f32 = (0..CLASSES).map(|class| errors[class] * output[class][unit]).sum();
                    add_scaled(velocity, error / MINIBATCH as f32, input);
                }
            }
            touch.computed((MINIBATCH * PIXELS) as u64);
        }
        for (activation, errors) in self.activations.iter().zip(&self.errors) {
            for (weights, error) in output.iter_mut().zip(errors) {
                kept.iter().for_each(|&unit| weights[unit] += RATE * error * activation[unit] / MINIBATCH as f32);
            }
        }
        drop(output);
        for &unit in kept {
            touch.touch(Region::Velocity, unit as u64 * ROW_BYTES, ROW_BYTES, false);
            touch.touch(Region::Weights, unit as u64 * ROW_BYTES, ROW_BYTES, true);
            add_scaled(&mut network.hidden[unit].write(), RATE, &self.velocity[unit]);
            touch.computed(PIXELS as u64);
        }
    }
}

/// Sixteen sums side by side, which the compiler turns into vectors.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (left, right) in left.chunks_exact(16).zip(right.chunks_exact(16)) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum()
}

fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

#[cfg(test)]
mod tests {
    use super::super::touch::{NoRecording, Recorder};
    use super::*;

    #[test]
    fn the_network_learns_to_read_the_digits() {
        let (network, digits) = (Network::new(64, 1), Digits::made_up(400, 2));
        let mut trainer = Trainer::new(&network, 3);
        let mut correct = |steps: u32| {
            (0..steps).map(|_| trainer.step(&network, &digits, &mut NoRecording)).sum::<f64>() / f64::from(steps)
        };
        let (before, _, after) = (correct(10), correct(180), correct(30));
        // Chance reads one in ten; dropout is on while it is counted.
        assert!(before < 0.3 && after > 0.5, "{before} {after}");
    }

    #[test]
    fn a_step_touches_its_digits_and_half_of_the_rows_four_times() {
        let (network, digits) = (Network::new(256, 1), Digits::made_up(10, 2));
        let mut recorder = Recorder::default();
        Trainer::new(&network, 3).step(&network, &digits, &mut recorder);
        let rows = |region, store| {
            let runs = recorder.runs.iter().filter(|run| run.region == region && run.store == store);
            runs.inspect(|run| assert_eq!((run.lines, run.first_line % 49), (49, 0))).count()
        };
        let kept = rows(Region::Weights, false);
        assert!((100..156).contains(&kept), "{kept}");
        for (region, store) in [(Region::Velocity, true), (Region::Velocity, false), (Region::Weights, true)] {
            assert_eq!(rows(region, store), kept);
        }
        assert_eq!(recorder.runs.iter().filter(|run| run.region == Region::Digits).count(), MINIBATCH);
    }
}
