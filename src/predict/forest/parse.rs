//! Reads LightGBM's text format and proves that what it read can be evaluated.
//!
//! Nothing is allocated for a declared size: every array is as long as the text that spells it. Each tree's
//! splits are walked once from the root, so that a cycle, a shared child or an unreachable node is found.

use std::{ops::Range, str::FromStr};

use super::{Forest, ForestError, Missing, Next, Rule, Split, Transform};

/// Most bytes of a file; `bear-train`'s largest models are a hundredth of it.
const MAX_BYTES: usize = 256 << 20;
/// Most features of a model.
const MAX_FEATURES: usize = 100_000;
/// Most fields of a tree; LightGBM writes under twenty.
const MAX_TREE_FIELDS: usize = 64;

/// Bits of `decision_type` (LightGBM 4.7.0 `tree.h`).
const CATEGORICAL_BIT: i64 = 1;
const DEFAULT_LEFT_BIT: i64 = 2;

/// The text, line by line, with the place for errors.
struct Lines<'a> {
    text: &'a str,
    /// Byte offset of the next line.
    at: usize,
    /// Number of the last line returned, from 1.
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (line, used) = match rest.find('\n') {
            Some(end) => (&rest[..end], end + 1),
            None => (rest, rest.len()),
        };
        self.at += used;
        self.number += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    fn next_filled(&mut self) -> Option<&'a str> {
        loop {
            match self.next()? {
                "" => {}
                line => return Some(line),
            }
        }
    }

    fn error(&self, what: impl Into<String>) -> ForestError {
        ForestError::Line { line: self.number, what: what.into() }
    }
}

/// What the header says.
struct Header {
    feature_names: Vec<String>,
    transform: Transform,
    /// Bytes of each tree's section; absent: not told.
    tree_sizes: Option<Vec<usize>>,
}

/// One tree's lines, as they stand.
#[derive(Default)]
struct RawTree<'a> {
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> RawTree<'a> {
    fn field(&self, tree: usize, key: &str) -> Result<&'a str, ForestError> {
        let found = self.fields.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        found.ok_or_else(|| ForestError::Tree { tree, what: format!("has no `{key}`") })
    }

    fn array<T: FromStr>(&self, tree: usize, key: &str, expected: usize) -> Result<Vec<T>, ForestError> {
        let values = self.list(tree, key)?;
        if values.len() != expected {
            let what = format!("`{key}` has {} values, expected {expected}", values.len());
            return Err(ForestError::Tree { tree, what });
        }
        Ok(values)
    }

    fn list<T: FromStr>(&self, tree: usize, key: &str) -> Result<Vec<T>, ForestError> {
        let parse = |word: &str| {
            let what = || format!("`{key}` holds `{}`", excerpt(word));
            word.parse().map_err(|_| ForestError::Tree { tree, what: what() })
        };
        self.field(tree, key)?.split_ascii_whitespace().map(parse).collect()
    }

    fn count(&self, tree: usize, key: &str) -> Result<usize, ForestError> {
        let value = self.field(tree, key)?;
        let what = || format!("`{key}` is `{}`, not a count", excerpt(value));
        value.trim().parse().map_err(|_| ForestError::Tree { tree, what: what() })
    }
}

/// Reads a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Forest, ForestError> {
    if bytes.len() > MAX_BYTES {
        return Err(ForestError::TooLarge { bytes: bytes.len(), limit: MAX_BYTES });
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| ForestError::NotText { at: error.valid_up_to() })?;
    let mut lines = Lines { text, at: 0, number: 0 };
    let header = parse_header(&mut lines)?;
    let mut forest = Forest {
        feature_names: header.feature_names,
        transform: header.transform,
        roots: Vec::new(),
        splits: Vec::new(),
        leaves: Vec::new(),
        category_bits: Vec::new(),
    };
    // The most that the leaves of the trees so far can add up to, of either sign.
    let mut reach = 0.0;
    // Where each tree starts, then (once the next thing starts) how many bytes it took.
    let mut sizes = Vec::new();
    loop {
        skip_blank_lines(&mut lines);
        let start = lines.at;
        if let Some(last) = sizes.last_mut() {
            *last = start - *last;
        }
        let missing = || ForestError::Truncated { missing: String::from("`end of trees`") };
        let line = lines.next_filled().ok_or_else(missing)?;
        if line == "end of trees" {
            break;
        }
        let tree = forest.roots.len();
        if line.strip_prefix("Tree=").and_then(|n| n.parse().ok()) != Some(tree) {
            return Err(
                lines.error(format!("expected `Tree={tree}` or `end of trees`, found `{}`", excerpt(line)))
            );
        }
        sizes.push(start);
        let raw = parse_tree_lines(&mut lines)?;
        let first_leaf = forest.leaves.len();
        add_tree(&mut forest, tree, &raw)?;
        reach += forest.leaves.iter().skip(first_leaf).fold(0.0, |most, leaf| leaf.abs().max(most));
        if !forest.transform.apply(reach).is_finite() {
            let what = String::from("its leaves and those before can add up to infinity");
            return Err(ForestError::Tree { tree, what });
        }
    }
    check_sizes(header.tree_sizes.as_deref(), &sizes)?;
    parse_tail(&mut lines)?;
    Ok(forest)
}

fn skip_blank_lines(lines: &mut Lines<'_>) {
    while lines.text.as_bytes().get(lines.at).is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        let _ = lines.next();
    }
}

fn check_sizes(declared: Option<&[usize]>, found: &[usize]) -> Result<(), ForestError> {
    let Some(declared) = declared else { return Ok(()) };
    if declared.len() != found.len() {
        let missing =
            format!("one of the {} trees that `tree_sizes` lists ({} found)", declared.len(), found.len());
        return Err(ForestError::Truncated { missing });
    }
    match declared.iter().zip(found).position(|(declared, found)| declared != found) {
        Some(tree) => {
            let what = format!("takes {} bytes, `tree_sizes` says {}", found[tree], declared[tree]);
            Err(ForestError::Tree { tree, what })
        }
        None => Ok(()),
    }
}

fn parse_header(lines: &mut Lines<'_>) -> Result<Header, ForestError> {
    if lines.next_filled() != Some("tree") {
        return Err(lines.error("a model starts with the line `tree`"));
    }
    let mut feature_names = None;
    let mut max_feature = None;
    let mut transform = None;
    let mut tree_sizes = None;
    let mut version = false;
    while lines.text.as_bytes().get(lines.at).is_some_and(|byte| !matches!(byte, b'\n' | b'\r')) {
        let Some(line) = lines.next() else { break };
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        match key {
            "version" if value != "v4" => {
                return Err(unsupported(format!("format version `{}`", excerpt(value))));
            }
            "version" => version = true,
            "num_class" | "num_tree_per_iteration" if value != "1" => {
                return Err(unsupported(format!("`{key}={}`", excerpt(value))));
            }
            "average_output" => return Err(unsupported(String::from("averaging the trees (`boosting=rf`)"))),
            "max_feature_idx" => {
                let index: usize =
                    value.parse().map_err(|_| lines.error("`max_feature_idx` is not a count"))?;
                max_feature = Some(index);
            }
            "feature_names" => {
                feature_names = Some(value.split(' ').map(str::to_owned).collect::<Vec<_>>());
            }
            "objective" => transform = Some(parse_objective(value)?),
            "tree_sizes" => {
                let sizes = value.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>();
                tree_sizes =
                    Some(sizes.map_err(|_| lines.error("`tree_sizes` holds something else than sizes"))?);
            }
            _ => {}
        }
    }
    let missing = |what: &str| ForestError::Truncated { missing: format!("the header's `{what}`") };
    if !version {
        return Err(missing("version"));
    }
    let feature_names = feature_names.ok_or_else(|| missing("feature_names"))?;
    let max_feature = max_feature.ok_or_else(|| missing("max_feature_idx"))?;
    if feature_names.len() > MAX_FEATURES || max_feature.checked_add(1) != Some(feature_names.len()) {
        return Err(
            lines.error(format!("{} feature names, `max_feature_idx` is {max_feature}", feature_names.len()))
        );
    }
    Ok(Header { feature_names, transform: transform.ok_or_else(|| missing("objective"))?, tree_sizes })
}

fn parse_objective(value: &str) -> Result<Transform, ForestError> {
    match value.trim_end() {
        "regression" | "regression_l1" | "huber" => Ok(Transform::Identity),
        "regression sqrt" => Ok(Transform::SignedSquare),
        other => Err(unsupported(format!("objective `{}`", excerpt(other)))),
    }
}

fn parse_tree_lines<'a>(lines: &mut Lines<'a>) -> Result<RawTree<'a>, ForestError> {
    let mut raw = RawTree::default();
    loop {
        let missing = || ForestError::Truncated { missing: String::from("the end of a tree") };
        match lines.next().ok_or_else(missing)? {
            "" => return Ok(raw),
            line => {
                let field = line.split_once('=');
                let (key, value) =
                    field.ok_or_else(|| lines.error(format!("`{}` has no `=`", excerpt(line))))?;
                if raw.fields.iter().any(|(known, _)| *known == key) {
                    return Err(lines.error(format!("`{}` stands twice in one tree", excerpt(key))));
                }
                if raw.fields.len() == MAX_TREE_FIELDS {
                    return Err(lines.error(format!("a tree of more than {MAX_TREE_FIELDS} fields")));
                }
                raw.fields.push((key, value));
            }
        }
    }
}

/// Appends one tree to the forest's arrays.
fn add_tree(forest: &mut Forest, tree: usize, raw: &RawTree<'_>) -> Result<(), ForestError> {
    let error = |what: String| ForestError::Tree { tree, what };
    let leaves: Vec<f64> = raw.list(tree, "leaf_value")?;
    let declared = raw.count(tree, "num_leaves")?;
    if declared != leaves.len() || leaves.is_empty() {
        return Err(error(format!("`num_leaves` is {declared}, `leaf_value` has {}", leaves.len())));
    }
    if let Some(leaf) = leaves.iter().position(|value| !value.is_finite()) {
        return Err(error(format!("leaf {leaf} is not finite")));
    }
    if raw.field(tree, "is_linear").is_ok_and(|value| value != "0") {
        return Err(unsupported(String::from("`linear_tree`")));
    }
    let first = u32::try_from(forest.splits.len()).map_err(|_| error(String::from("too many splits")))?;
    let first_leaf =
        u32::try_from(forest.leaves.len()).map_err(|_| error(String::from("too many leaves")))?;
    let splits = leaves.len() - 1;
    if splits == 0 {
        forest.roots.push(Next::Leaf(first_leaf));
    } else {
        let left: Vec<i64> = raw.array(tree, "left_child", splits)?;
        let right: Vec<i64> = raw.array(tree, "right_child", splits)?;
        check_shape(&left, &right, tree)?;
        let rules = parse_rules(forest, tree, raw, splits)?;
        let next = |child: i64| {
            if child < 0 { Next::Leaf(first_leaf + !child as u32) } else { Next::Split(first + child as u32) }
        };
        for ((feature, rule), (left, right)) in rules.into_iter().zip(left.into_iter().zip(right)) {
            forest.splits.push(Split { feature, rule, left: next(left), right: next(right) });
        }
        forest.roots.push(Next::Split(first));
    }
    forest.leaves.extend(leaves);
    Ok(())
}

/// Proves that the children form one tree over all splits and all leaves: a negative child is leaf `!child`.
fn check_shape(left: &[i64], right: &[i64], tree: usize) -> Result<(), ForestError> {
    let refuse = |what: String| Err(ForestError::Tree { tree, what });
    let splits = left.len();
    let mut split_seen = vec![false; splits];
    let mut leaf_seen = vec![false; splits + 1];
    let mut pending = vec![0_usize];
    split_seen[0] = true;
    while let Some(split) = pending.pop() {
        for child in [left[split], right[split]] {
            let (seen, kind, index) = if child < 0 {
                (&mut leaf_seen, "leaf", !child as usize)
            } else {
                (&mut split_seen, "split", child as usize)
            };
            match seen.get_mut(index) {
                None => {
                    return refuse(format!("split {split} leads to {kind} {index}, which does not exist"));
                }
                Some(true) => {
                    return refuse(format!("{kind} {index} is reached twice: a cycle or a shared child"));
                }
                Some(seen) => *seen = true,
            }
            if child >= 0 {
                pending.push(index);
            }
        }
    }
    match (split_seen.iter().position(|seen| !seen), leaf_seen.iter().position(|seen| !seen)) {
        (Some(split), _) => refuse(format!("split {split} is never reached")),
        (None, Some(leaf)) => refuse(format!("leaf {leaf} is never reached")),
        (None, None) => Ok(()),
    }
}

/// Reads what each split tests, and appends the tree's category sets to the forest's.
fn parse_rules(
    forest: &mut Forest,
    tree: usize,
    raw: &RawTree<'_>,
    splits: usize,
) -> Result<Vec<(u32, Rule)>, ForestError> {
    let error = |what: String| ForestError::Tree { tree, what };
    let features: Vec<u32> = raw.array(tree, "split_feature", splits)?;
    let thresholds: Vec<f64> = raw.array(tree, "threshold", splits)?;
    let decisions: Vec<i64> = raw.array(tree, "decision_type", splits)?;
    let sets = parse_category_sets(forest, tree, raw)?;
    let mut rules = Vec::with_capacity(splits);
    for (split, ((feature, threshold), decision)) in
        features.into_iter().zip(thresholds).zip(decisions).enumerate()
    {
        if feature as usize >= forest.feature_names.len() {
            return Err(error(format!("split {split} tests feature {feature}, which does not exist")));
        }
        if !threshold.is_finite() {
            return Err(error(format!("split {split} has a threshold that is not finite")));
        }
        let rule = match (decision, decision & CATEGORICAL_BIT) {
            (0..=11, 0) => Rule::Numerical {
                threshold,
                missing: [Missing::None, Missing::Zero, Missing::Nan][decision as usize >> 2],
                default_left: decision & DEFAULT_LEFT_BIT != 0,
            },
            (0..=11, _) => {
                let set =
                    sets.get(threshold as usize).filter(|_| threshold >= 0.0 && threshold.fract() == 0.0);
                let set =
                    set.ok_or_else(|| error(format!("split {split} names category set {threshold}")))?;
                Rule::Categorical { first_word: set.start, words: set.end - set.start }
            }
            _ => return Err(error(format!("split {split} has decision type {decision}"))),
        };
        rules.push((feature, rule));
    }
    Ok(rules)
}

/// Appends a tree's category sets to [`Forest::category_bits`] and returns where each stands.
fn parse_category_sets(
    forest: &mut Forest,
    tree: usize,
    raw: &RawTree<'_>,
) -> Result<Vec<Range<u32>>, ForestError> {
    let error = |what: &str| ForestError::Tree { tree, what: what.to_owned() };
    let count = raw.count(tree, "num_cat")?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let boundaries: Vec<u32> = raw.list(tree, "cat_boundaries")?;
    if boundaries.len().checked_sub(1) != Some(count) {
        return Err(error("`cat_boundaries` does not have `num_cat` + 1 values"));
    }
    let words: Vec<u32> = raw.list(tree, "cat_threshold")?;
    let spans_all =
        boundaries.first() == Some(&0) && boundaries.last().map(|end| *end as usize) == Some(words.len());
    if !spans_all || !boundaries.is_sorted() {
        return Err(error("`cat_boundaries` does not divide `cat_threshold`"));
    }
    let base = forest.category_bits.len();
    let base = u32::try_from(base).ok().filter(|base| base.checked_add(words.len() as u32).is_some());
    let base = base.ok_or_else(|| error("too many category sets"))?;
    forest.category_bits.extend(words);
    Ok(boundaries.windows(2).map(|pair| base + pair[0]..base + pair[1]).collect())
}

/// Reads on to the end of the parameters: a file cut there is cut, and linear trees are named there.
fn parse_tail(lines: &mut Lines<'_>) -> Result<(), ForestError> {
    while let Some(line) = lines.next() {
        if line == "end of parameters" {
            return Ok(());
        }
        if line.strip_prefix("[linear_tree:").is_some_and(|value| value.trim_end_matches(']').trim() != "0") {
            return Err(unsupported(String::from("`linear_tree`")));
        }
    }
    Err(ForestError::Truncated { missing: String::from("`end of parameters`") })
}

fn unsupported(what: String) -> ForestError {
    ForestError::Unsupported { what }
}

/// Shortens a piece of the file for a message.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
