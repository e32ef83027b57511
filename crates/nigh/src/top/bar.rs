//! Parts of a whole as letters in a row. Pure.

/// `width` letters of `parts`, each as many as its share; what is left of the whole are dots.
pub(super) fn bar(parts: &[(char, f64)], whole: f64, width: usize) -> String {
    if whole.is_nan() || whole <= 0.0 {
        return ".".repeat(width);
    }
    let (mut text, mut sum) = (String::with_capacity(width), 0.0);
    for (letter, value) in parts {
        sum += value.max(0.0);
        // Ends are rounded, not lengths, so that errors do not add up.
        let end = ((sum / whole).min(1.0) * width as f64).round() as usize;
        let length = text.chars().count();
        text.extend(std::iter::repeat_n(*letter, end.saturating_sub(length)));
    }
    let length = text.chars().count();
    text.extend(std::iter::repeat_n('.', width.saturating_sub(length)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_shares_and_the_rest_is_dots() {
        assert_eq!(bar(&[('U', 1.0), ('G', 1.0)], 4.0, 8), "UUGG....");
        assert_eq!(bar(&[('A', 1.0), ('B', 1.0), ('C', 1.0)], 3.0, 10), "AAABBBBCCC");
        assert_eq!(bar(&[('A', 9.0)], 3.0, 4), "AAAA");
        assert_eq!(bar(&[('A', 1.0)], 0.0, 3), "...");
    }
}
