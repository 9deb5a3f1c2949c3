//! The known name nearest to a mistyped one.

/// Returns the candidate with the least edit distance to `asked`, unless even that one is a different word.
fn nearest<'a>(asked: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (asked.chars().count() / 2).max(2);
    candidates
        .into_iter()
        .map(|candidate| (distance(asked, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the words that suggest the nearest candidate, or list all where none is near.
pub(crate) fn suggestion(asked: &str, candidates: &[&str]) -> String {
    match nearest(asked, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => String::from("none is known here"),
        None => format!("known are {}", candidates.join(", ")),
    }
}

/// Counts the edits (insert, delete, replace, swap of neighbours) between two words, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("policy", "poilcy", 1), ("A", "a", 0)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let known = ["lambda_per_usd", "delta_per_s", "policy"];
        assert_eq!(nearest("lamda_per_usd", known), Some("lambda_per_usd"));
        assert_eq!(nearest("delta_pers", known), Some("delta_per_s"));
        assert_eq!(nearest("telemetry", known), None);
        assert_eq!(suggestion("x", &["bear", "round-robin"]), "known are bear, round-robin");
    }
}
