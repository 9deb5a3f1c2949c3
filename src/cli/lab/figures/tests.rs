//! The page and its files, from made run lines.

use std::{fmt::Write as _, fs, path::Path};

use super::{super::supplies::SCENARIOS, list::FIGURES, *};
use crate::lab::{RunLine, figures::made};

fn write_lines(folder: &Path, lines: &[RunLine]) {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", serde_json::to_string(line).unwrap()).unwrap();
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("runs.jsonl"), text).unwrap();
}

fn made_in(folder: &Path, lines: &[RunLine], notes: &str, svg_only: bool) -> String {
    write_lines(&folder.join("results"), lines);
    fs::write(folder.join("notes.yaml"), notes).unwrap();
    run(Args {
        results: folder.join("results"),
        out: folder.join("out"),
        notes: Some(folder.join("notes.yaml")),
        svg_only,
        play: false,
        how: Play::default(),
    })
    .unwrap();
    fs::read_to_string(folder.join("out/index.html")).unwrap()
}

#[test]
fn every_figure_is_drawn_and_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let notes = "figure-08: {verdict: agrees, text: Best <everywhere>.}\n\
                 figure-08/joint-mean: {verdict: differs, text: Less.}\n";
    let page = made_in(folder.path(), &made::lines(), notes, true);
    for figure in FIGURES {
        let svg = fs::read_to_string(folder.path().join(format!("out/{}.svg", figure.id()))).unwrap();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{}", figure.id());
        assert!(page.contains(&format!("id=\"{}\"", figure.id())), "{}", figure.id());
        assert!(page.contains(&format!("Figure {}. ", figure.number)));
    }
    let numbers: Vec<u32> = FIGURES.iter().map(|f| f.number).collect();
    assert_eq!(numbers, [1, 4, 5, 8, 9, 10, 12, 13, 14, 16, 17, 18, 19]);
    assert!(!page.contains("Not measured yet") && !page.contains("not measured"));
    assert!(page.contains("Best &lt;everywhere&gt;.") && !page.contains("<everywhere>"));
    assert!(
        page.contains("<td class=\"bad\">differs</td>") && page.contains("<td class=\"good\">agrees</td>")
    );
    assert!(page.contains("0.0035 ms a prompt token") && page.contains("0.05 / 0.2"));
}

#[test]
fn the_same_results_give_the_same_files_in_whatever_order_they_come() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut lines = made::lines();
    let first = made_in(one.path(), &lines, "{}", true);
    lines.reverse();
    assert!(first == made_in(two.path(), &lines, "{}", true));
}

#[test]
fn without_runs_a_figure_keeps_its_place_and_says_what_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = made::lines();
    lines.retain(|line| line.key.scenario == "lambda");
    let page = made_in(folder.path(), &lines, "{}", true);
    for figure in FIGURES {
        assert!(page.contains(&format!("id=\"{}\"", figure.id())), "{}", figure.id());
        let drawn = folder.path().join(format!("out/{}.svg", figure.id())).exists();
        assert_eq!(drawn, matches!(figure.number, 5 | 17), "{}", figure.id());
    }
    assert!(page.contains("Run `bear lab run delta delta-others`, then"));
    assert!(page.contains("not measured"));
}

#[test]
fn lines_of_one_seed_and_of_unknown_routers_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = made::lines();
    lines.retain(|line| line.key.seed == 1);
    for line in &mut lines {
        if line.key.router == "block" {
            line.key.router = "our & own".into();
        }
    }
    made_in(folder.path(), &lines, "{}", true);
    let svg = fs::read_to_string(folder.path().join("out/figure-08.svg")).unwrap();
    assert!(svg.contains("our &amp; own"));
}

#[test]
fn a_cut_last_line_is_passed_over_and_a_bad_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let lines = &made::lines()[..3];
    write_lines(folder.path(), lines);
    let file = folder.path().join("runs.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 40]).unwrap();
    assert_eq!(read_results(folder.path()).unwrap().len(), 2);
    fs::write(&file, format!("{whole}{{\"key\": 1}}\n")).unwrap();
    let error = format!("{:#}", read_results(folder.path()).unwrap_err());
    assert!(error.contains("runs.jsonl` line 4"), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(read_results(folder.path()).unwrap_err().to_string().contains("no *.jsonl"));
    let mut lines = lines.to_vec();
    lines[1].key.world = "other".into();
    write_lines(folder.path(), &lines);
    let error = read_results(folder.path()).unwrap_err().to_string();
    assert!(error.contains("different settings") && error.contains("poisson"), "{error}");
}

#[test]
fn notes_of_unknown_figures_are_refused() {
    let error = Notes::parse("figure-99: {verdict: agrees}").unwrap_err().to_string();
    assert!(error.contains("figure-99") && error.contains("figure-08/best-baseline"), "{error}");
    assert!(Notes::parse("figure-08: {verdict: perhaps}").is_err());
    assert!(Notes::parse(NOTES).is_ok());
}

#[test]
fn every_figure_and_number_has_a_verdict_and_a_reason() {
    let notes = Notes::parse(NOTES).unwrap();
    let figures = FIGURES.iter().map(|figure| (figure.id(), notes.figure(&figure.id())));
    let rows = paper::ROWS.iter().map(|row| (row.id(), notes.row(&row.id())));
    for (id, note) in figures.chain(rows) {
        assert!(note.is_some_and(|note| note.text.len() > 20), "{id} has no reason in notes.yaml");
    }
}

#[test]
fn every_figure_needs_scenarios_that_are_built_in() {
    for name in FIGURES.iter().flat_map(|figure| figure.scenarios) {
        assert!(SCENARIOS.iter().any(|known| known.name == *name), "{name}");
    }
}
