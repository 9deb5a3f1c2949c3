//! The tree rules on models small enough to follow by hand, and what the reader refuses.

use super::*;

/// Two features; the first tree splits on a number, then on a category; the second is one leaf.
const MODEL: &str = "tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=huber
feature_names=size kind
feature_infos=[0:9] 0:1:33
tree_sizes=SIZES

TREES
end of trees

feature_importances:
size=1

parameters:
[linear_tree: 0]
end of parameters

pandas_categorical:null
";

const FIRST: &str = "Tree=0
num_leaves=3
num_cat=1
split_feature=0 1
split_gain=1 1
threshold=2.5 0
decision_type=8 1
left_child=-1 -2
right_child=1 -3
leaf_value=0.25 0.5 -1
leaf_weight=1 1 1
leaf_count=1 1 1
internal_value=0 0
internal_weight=0 0
internal_count=3 2
cat_boundaries=0 2
cat_threshold=2 2
is_linear=0
shrinkage=1


";

const SECOND: &str = "Tree=1
num_leaves=1
num_cat=0
split_feature=
threshold=
decision_type=
left_child=
right_child=
leaf_value=10
is_linear=0
shrinkage=1


";

fn assemble(trees: &[&str]) -> String {
    let sizes: Vec<String> = trees.iter().map(|tree| tree.len().to_string()).collect();
    MODEL.replace("SIZES", &sizes.join(" ")).replace("TREES\n", &trees.concat())
}

fn model() -> String {
    assemble(&[FIRST, SECOND])
}

fn with_first(from: &str, to: &str) -> Result<Forest, ForestError> {
    assert!(FIRST.contains(from), "the tree has no {from:?}");
    Forest::parse(assemble(&[&FIRST.replace(from, to), SECOND]).as_bytes())
}

fn refused(from: &str, to: &str) -> String {
    with_first(from, to).expect_err("the change is harmful").to_string()
}

#[test]
fn trees_are_summed_in_order() {
    let forest = Forest::parse(model().as_bytes()).unwrap();
    assert_eq!((forest.trees(), forest.feature_names()), (2, &["size".to_owned(), "kind".to_owned()][..]));
    assert_eq!(forest.predict(&[2.5, 0.0]), 10.25, "at most the threshold goes left");
    assert_eq!(forest.predict(&[2.6, 1.0]), 10.5, "category 1 is in the set");
    assert_eq!(forest.predict(&[2.6, 33.9]), 10.5, "33 is in the second word");
    assert_eq!(forest.predict(&[2.6, 2.0]), 9.0);
}

#[test]
fn odd_categories_go_right() {
    let forest = Forest::parse(model().as_bytes()).unwrap();
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 64.0, 1e300, 4_294_967_297.0] {
        assert_eq!(forest.predict(&[3.0, odd]), 9.0, "category {odd}");
    }
    assert_eq!(forest.predict(&[3.0]), 9.0, "a short row reads on with NaN");
}

#[test]
fn missing_values_follow_the_splits_missing_type() {
    let at = |decision_type: u32, value: f64| {
        let forest = with_first("decision_type=8 1", &format!("decision_type={decision_type} 1")).unwrap();
        forest.predict(&[value, 2.0])
    };
    let (left, right) = (10.25, 9.0);
    // Bit 1: default left. Bits 2 and 3: none, zero, NaN.
    assert_eq!([at(0, f64::NAN), at(2, f64::NAN)], [left, left], "none: NaN is 0, and 0 is under 2.5");
    assert_eq!([at(8, f64::NAN), at(10, f64::NAN)], [right, left], "NaN: by the default");
    assert_eq!([at(4, f64::NAN), at(6, f64::NAN)], [right, left], "zero: NaN too");
    assert_eq!([at(4, 0.0), at(6, -0.0), at(4, 1e-36)], [right, left, right], "zero: by the default");
    assert_eq!([at(8, 0.0), at(0, 0.0)], [left, left], "else zero is a number");
}

#[test]
fn the_square_root_objective_is_undone() {
    let text = model().replace("objective=huber", "objective=regression sqrt");
    assert_eq!(Forest::parse(text.as_bytes()).unwrap().predict(&[1.0, 0.0]), 10.25 * 10.25);
    let negative = text.replace("leaf_value=10\n", "leaf_value=-3\n").replace("tree_sizes=", "ignored=");
    assert_eq!(Forest::parse(negative.as_bytes()).unwrap().predict(&[1.0, 0.0]), -(2.75 * 2.75));
}

#[test]
fn cycles_and_shared_children_are_found() {
    assert!(refused("right_child=1 -3", "right_child=0 -3").contains("a cycle or a shared child"));
    assert!(refused("left_child=-1 -2", "left_child=-1 1").contains("a cycle or a shared child"));
    assert!(refused("left_child=-1 -2", "left_child=-1 -1").contains("leaf 0 is reached twice"));
    assert!(refused("right_child=1 -3", "right_child=-3 1").contains("split 1 is never reached"));
}

#[test]
fn bad_indices_are_found() {
    assert!(refused("right_child=1 -3", "right_child=2 -3").contains("split 2, which does not exist"));
    assert!(refused("right_child=1 -3", "right_child=1 -4").contains("leaf 3, which does not exist"));
    assert!(
        refused("right_child=1 -3", "right_child=1 -9223372036854775808").contains("which does not exist")
    );
    assert!(refused("split_feature=0 1", "split_feature=0 2").contains("feature 2, which does not exist"));
    assert!(refused("threshold=2.5 0", "threshold=2.5 1").contains("category set 1"));
    assert!(refused("threshold=2.5 0", "threshold=2.5 0.5").contains("category set 0.5"));
    assert!(refused("threshold=2.5 0", "threshold=2.5 -1").contains("category set -1"));
    assert!(refused("cat_boundaries=0 2", "cat_boundaries=0 3").contains("cat_boundaries"));
    assert!(refused("cat_boundaries=0 2", "cat_boundaries=0").contains("cat_boundaries"));
}

#[test]
fn wrong_counts_and_sizes_are_found() {
    assert!(refused("num_leaves=3", "num_leaves=4").contains("`num_leaves` is 4"));
    assert!(refused("num_leaves=3", "num_leaves=99999999999999999999").contains("num_leaves"));
    assert!(refused("num_leaves=3", "num_leaves=2147483647").contains("num_leaves"));
    assert!(refused("num_cat=1", "num_cat=4294967295").contains("num_cat"));
    assert!(refused("threshold=2.5 0", "threshold=2.5").contains("`threshold` has 1 values, expected 2"));
    assert!(refused("left_child=-1 -2", "left_child=-1 -2 -3").contains("expected 2"));
    assert!(refused("leaf_value=0.25 0.5 -1", "leaf_value=").contains("num_leaves"));
    let resized = model().replace(&format!("tree_sizes={} ", FIRST.len()), "tree_sizes=7 ");
    assert!(Forest::parse(resized.as_bytes()).unwrap_err().to_string().contains("`tree_sizes` says 7"));
    let more = model().replace("max_feature_idx=1", "max_feature_idx=18446744073709551615");
    assert!(Forest::parse(more.as_bytes()).unwrap_err().to_string().contains("feature names"));
}

#[test]
fn bad_values_are_found() {
    assert!(refused("threshold=2.5 0", "threshold=nan 0").contains("not finite"));
    assert!(refused("threshold=2.5 0", "threshold=2,5 0").contains("`threshold` holds `2,5`"));
    assert!(refused("leaf_value=0.25 0.5 -1", "leaf_value=0.25 inf -1").contains("leaf 1 is not finite"));
    assert!(refused("decision_type=8 1", "decision_type=12 1").contains("decision type 12"));
    assert!(refused("decision_type=8 1", "decision_type=-1 1").contains("decision type -1"));
    assert!(refused("shrinkage=1", "num_cat=1").contains("stands twice"));
    assert!(refused("shrinkage=1", "shrinkage").contains("has no `=`"));
}

#[test]
fn leaves_that_can_add_up_to_infinity_are_refused() {
    assert!(with_first("leaf_value=0.25 0.5 -1", "leaf_value=1e308 0.5 -1").is_ok());
    let second = SECOND.replace("leaf_value=10", "leaf_value=-1e308");
    let text = assemble(&[&FIRST.replace("leaf_value=0.25 0.5 -1", "leaf_value=0.25 0.5 -1e308"), &second]);
    let error = Forest::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("tree 1") && error.contains("infinity"), "{error}");
    let squared = assemble(&[FIRST, &second.replace("-1e308", "1e160")]);
    assert!(Forest::parse(squared.as_bytes()).is_ok());
    let squared = squared.replace("objective=huber", "objective=regression sqrt");
    assert!(Forest::parse(squared.as_bytes()).unwrap_err().to_string().contains("infinity"));
}

#[test]
fn a_missing_line_is_named() {
    for key in [
        "num_leaves",
        "num_cat",
        "split_feature",
        "threshold",
        "decision_type",
        "left_child",
        "right_child",
        "leaf_value",
        "cat_boundaries",
        "cat_threshold",
    ] {
        let error = refused(&format!("{key}="), &format!("x{key}="));
        assert!(error.contains(&format!("has no `{key}`")), "{key}: {error}");
    }
    for (from, word) in [
        ("version=v4", "version"),
        ("feature_names=", "feature_names"),
        ("objective=", "objective"),
        ("max_feature_idx=", "max_feature_idx"),
    ] {
        let error = Forest::parse(model().replace(from, "other=").as_bytes()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn kinds_that_are_not_evaluated_are_named() {
    for (from, to, word) in [
        ("objective=huber", "objective=poisson", "objective `poisson`"),
        ("objective=huber", "objective=huber sqrt", "objective `huber sqrt`"),
        ("version=v4", "version=v3", "format version `v3`"),
        ("num_class=1", "num_class=3", "`num_class=3`"),
        ("label_index=0", "average_output", "averaging"),
        ("[linear_tree: 0]", "[linear_tree: 1]", "linear_tree"),
    ] {
        let error = Forest::parse(model().replace(from, to).as_bytes()).unwrap_err();
        assert!(matches!(&error, ForestError::Unsupported { what } if what.contains(word)), "{error}");
    }
    assert!(refused("is_linear=0", "is_linear=1").contains("linear_tree"));
}

#[test]
fn a_file_cut_anywhere_before_its_last_line_is_refused() {
    let text = model();
    let end = text.find("end of parameters").unwrap() + "end of parameters".len();
    for cut in 0..end {
        assert!(Forest::parse(&text.as_bytes()[..cut]).is_err(), "cut at byte {cut} of {end}");
    }
    assert!(Forest::parse(&text.as_bytes()[..end]).is_ok());
    assert_eq!(Forest::parse(b"\xff\xfe"), Err(ForestError::NotText { at: 0 }));
}

#[test]
fn other_line_ends_read_the_same() {
    let windows = model().replace('\n', "\r\n").replace("tree_sizes=", "ignored=");
    assert_eq!(Forest::parse(windows.as_bytes()), Forest::parse(model().as_bytes()));
}
