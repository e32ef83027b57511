//! A text of made-up words, in lines: a few words are most of it and most words are rare (Zipf's law), as in any
//! language.

use rand::Rng;

const SYLLABLES: [&str; 24] = [
    "ka", "lo", "mi", "ten", "sur", "ve", "ro", "an", "dil", "pe", "tu", "shi", "gor", "na", "el", "bri", "fo", "wen",
    "zu", "cha", "dri", "ost", "ira", "u",
];
const WORDS: usize = 4096;
const LINE_MAX: usize = 78;
/// One word in so many ends a sentence.
const SENTENCE: u32 = 12;

/// A text of exactly `bytes` bytes.
pub(super) fn text(bytes: usize, random: &mut impl Rng) -> Vec<u8> {
    let words: Vec<String> = (0..WORDS)
        .map(|_| (0..random.random_range(1..=4)).map(|_| SYLLABLES[random.random_range(0..SYLLABLES.len())]).collect())
        .collect();
    let mut text = String::with_capacity(bytes + LINE_MAX);
    let mut line = 0;
    while text.len() < bytes {
        // Evenly spread over the logarithm: the n-th word comes one n-th as often as the first.
        let rank = (WORDS as f64).powf(random.random::<f64>()) as usize - 1;
        let word = &words[rank.min(WORDS - 1)];
        let between = match line {
            0 => "",
            _ if line + word.len() + 2 > LINE_MAX => "\n",
            _ if random.random_range(0..SENTENCE) == 0 => ". ",
            _ => " ",
        };
        line = if between == "\n" { word.len() } else { line + between.len() + word.len() };
        text.push_str(between);
        text.push_str(word);
    }
    let mut text = text.into_bytes();
    text.truncate(bytes.saturating_sub(1));
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_text_has_lines_and_its_words_are_as_frequent_as_words_are() {
        let text = String::from_utf8(text(200_000, &mut StdRng::seed_from_u64(1))).unwrap();
        assert_eq!(text.len(), 200_000);
        assert!(text.ends_with('\n') && text.lines().all(|line| line.len() <= LINE_MAX && !line.is_empty()));
        let mut counts = HashMap::new();
        let words = text.split([' ', '\n', '.']).filter(|word| !word.is_empty());
        words.for_each(|word| *counts.entry(word).or_insert(0_u32) += 1);
        let (all, most) = (counts.values().sum::<u32>(), counts.values().max().unwrap());
        assert!(counts.len() > 1000 && most * 20 > all, "{} words, {most} of {all}", counts.len());
    }
}
