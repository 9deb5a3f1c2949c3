//! Splits a prompt into words and numerals: `1,500` and `1 500` are one number, `3.5` is none.

/// A piece of text between punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Letters and digits, not of digits alone.
    Word(&'a str),
    /// Digits with what groups or divides them; its value where that is a whole number that fits.
    Numeral(Option<u32>),
}

/// Returns the next piece of `text` and what follows it.
pub(super) fn next_token(text: &str) -> Option<(Token<'_>, &str)> {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let (word, after) = text.split_at_checked(end).filter(|(word, _)| !word.is_empty())?;
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((Token::Word(word), after));
    }
    let (value, after) = numeral(word, after);
    Some((Token::Numeral(value), after))
}

/// Reads on from the digits `first` through groups and decimals.
fn numeral<'a>(first: &str, mut after: &'a str) -> (Option<u32>, &'a str) {
    let mut value = first.parse::<u32>().ok();
    let mut separator = None;
    while let Some((found, digits, rest)) = next_digits(after) {
        let groups = first.len() <= 3 && digits.len() == 3 && separator.is_none_or(|same| same == found);
        let spaced = !matches!(found, ',' | '.');
        if spaced && !groups {
            break;
        }
        value = match (groups && found != '.', digits.parse::<u32>()) {
            (true, Ok(low)) => {
                value.and_then(|high| high.checked_mul(1_000)).and_then(|high| high.checked_add(low))
            }
            _ => None,
        };
        (separator, after) = (Some(found), rest);
    }
    (value, after)
}

/// Returns a separator, the digits right after it and the rest; none where letters or nothing follow it.
fn next_digits(text: &str) -> Option<(char, &str, &str)> {
    let separator = text.chars().next().filter(|c| matches!(c, ',' | '.' | ' ' | '\u{a0}' | '\u{202f}'))?;
    let text = text.get(separator.len_utf8()..)?;
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then_some((separator, digits, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numerals(mut text: &str) -> Vec<Option<u32>> {
        let mut found = Vec::new();
        while let Some((token, rest)) = next_token(text) {
            if let Token::Numeral(value) = token {
                found.push(value);
            }
            text = rest;
        }
        found
    }

    #[test]
    fn grouped_digits_are_one_number() {
        for (text, expected) in [
            ("1,500", vec![Some(1_500)]),
            ("1 500", vec![Some(1_500)]),
            ("1\u{202f}500.", vec![Some(1_500)]),
            ("1,234,567 and 8", vec![Some(1_234_567), Some(8)]),
            ("4,294,967,296", vec![None]),
            ("99999999999", vec![None]),
            ("300", vec![Some(300)]),
        ] {
            assert_eq!(numerals(text), expected, "{text:?}");
        }
    }

    #[test]
    fn decimals_and_odd_groups_are_no_whole_number() {
        for text in ["3.5", "1,500.25", "3,5", "1.5.2", "12,34,567", "2020,500", "1.500"] {
            assert_eq!(numerals(text), [None], "{text:?}");
        }
    }

    #[test]
    fn separate_numbers_stay_apart() {
        for (text, expected) in [
            ("1, 500", vec![Some(1), Some(500)]),
            ("2020 500", vec![Some(2_020), Some(500)]),
            ("5 20", vec![Some(5), Some(20)]),
            ("5  200", vec![Some(5), Some(200)]),
            ("100-200", vec![Some(100), Some(200)]),
            ("1 500th", vec![Some(1)]),
            ("item3 in 5.", vec![Some(5)]),
        ] {
            assert_eq!(numerals(text), expected, "{text:?}");
        }
    }
}
