//! Pictures and pages: what is drawn, and that the same data give the same bytes.

use super::{
    labels::{Taken, spread},
    page::{Block, Cell, Figure, Page, Table, html},
    *,
};

const BLUE: Ink = (0, 90, 181);

fn picture(marks: Vec<Mark>) -> Picture {
    Picture {
        title: "Utility <on time> & \"more\"".into(),
        subtitle: "8 requests/s".into(),
        legend: vec![Key { label: "met".into(), ink: BLUE, shape: Shape::Square }],
        panels: vec![Panel {
            title: "r = 3".into(),
            x: Axis { label: "Rate, requests/s".into(), ..Axis::default() },
            y: Axis { label: "Utility".into(), ..Axis::default() },
            marks,
        }],
        columns: 1,
        panel_size: (480, 320),
    }
}

fn line(label: &str, at: f64) -> Mark {
    let points = [6.0, 7.0, 8.0].map(|x| Spread { x, low: at - 0.02, value: at, high: at + 0.02 });
    Mark::Line { points: points.into(), ink: BLUE, shape: Shape::Circle, width: 3.0, label: label.into() }
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_line_has_its_band_its_points_and_its_name() {
    let drawn = svg(&picture(vec![line("bear", 0.7)])).unwrap();
    // One band; three points of two circles each (a rim and the point); the thick line is 3 px of 4 units.
    assert_eq!(count(&drawn, "<polygon"), 1 + 2, "the band, and the legend's square over its rim");
    assert_eq!(count(&drawn, "<circle"), 6);
    assert_eq!(count(&drawn, "stroke-width=\"12\""), 1);
    for text in ["\nbear\n", "Rate, requests/s", "r = 3", "8 requests/s", "\nmet\n"] {
        assert!(drawn.contains(text), "{text}");
    }
    assert!(drawn.contains("Utility &lt;on time&gt; &amp;"), "texts are escaped");
    assert_eq!(drawn, svg(&picture(vec![line("bear", 0.7)])).unwrap());
}

#[test]
fn missed_targets_are_hatched() {
    let bar = |hatched| Bar { x: (0.0, 1.0), y: (0.0, 1.0), ink: BLUE, hatched };
    let lines = |hatched| count(&svg(&picture(vec![Mark::Bars(vec![bar(hatched)])])).unwrap(), "<polyline");
    assert!(lines(true) > lines(false) + 20, "{} {}", lines(true), lines(false));
}

#[test]
fn log_axes_have_round_ticks_and_leave_out_what_has_no_place() {
    let mut picture = picture(vec![Mark::Dots { points: vec![(12.0, 9.0), (9_000.0, 2.0)], ink: BLUE }]);
    picture.panels[0].x.scale = Scale::Log;
    let drawn = svg(&picture).unwrap();
    for tick in ["\n100\n", "\n1,000\n"] {
        assert!(drawn.contains(tick), "{tick}");
    }
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
}

#[test]
fn names_keep_their_distance_and_stay_near() {
    let placed = spread(&[100.0, 101.0, 40.0], 14.0, (0.0, 200.0));
    // The two close ones part evenly around 100.5: 93.5 and 107.5; the third stays.
    assert_eq!(placed, [93.5, 107.5, 40.0]);
    let crowded = spread(&[5.0; 4], 10.0, (0.0, 35.0));
    let mut sorted = crowded.clone();
    sorted.sort_by(f64::total_cmp);
    assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 9.99) && sorted[0] >= 0.0, "{crowded:?}");
    let mut taken = Taken::default();
    let first = taken.place("route-balance", 12.0, (50.0, 50.0), [0.0, 0.0, 300.0, 100.0]);
    let second = taken.place("route-balance", 12.0, (52.0, 50.0), [0.0, 0.0, 300.0, 100.0]);
    assert!((first.1 - second.1).abs() >= 15.0 || (first.0 - second.0).abs() >= 80.0, "{first:?} {second:?}");
}

#[test]
fn numbers_are_grouped() {
    assert_eq!(axes::thousands("1234567.5"), "1,234,567.5");
    assert_eq!(axes::thousands("-100"), "-100");
    assert_eq!(axes::thousands("-1000"), "-1,000");
}

#[test]
fn pixels_are_the_same_every_time_and_hold_text() {
    let drawn = svg(&picture(vec![line("bear", 0.7)])).unwrap();
    let first = png(&drawn, 1.0).unwrap();
    assert_eq!(first, png(&drawn, 1.0).unwrap());
    assert_eq!(&first[1..4], b"PNG");
    // Without its letters the picture is smaller: the bundled font is found.
    let bare = drawn.replace("\nbear\n", "\n\n").replace("Rate, requests/s", "").replace("8 requests/s", "");
    assert!(png(&bare, 1.0).unwrap().len() + 500 < first.len());
    assert!(matches!(png("<svg", 1.0), Err(DrawError::Read { .. })));
}

#[test]
fn a_page_escapes_texts_and_needs_nothing_from_outside() {
    let page = Page {
        title: "A <b>page</b>".into(),
        blocks: vec![
            Block::Heading { id: "first".into(), text: "One & two".into() },
            Block::Text("<script>alert(1)</script>".into()),
            Block::Table(Table {
                caption: "A table".into(),
                head: vec!["a<b".into()],
                rows: vec![vec![Cell::number("5 > 4")]],
            }),
            Block::Figure(Figure {
                id: "figure-08".into(),
                svg: svg(&picture(vec![line("bear", 0.7)])).unwrap(),
                caption: "\"Seen\"".into(),
                note: "It's so".into(),
                file: "figure-08.svg".into(),
            }),
            Block::Missing { id: "figure-09".into(), caption: "c<".into(), how: "run <this>".into() },
        ],
    };
    let text = html(&page);
    for part in [
        "A &lt;b&gt;page&lt;/b&gt;",
        "&lt;script&gt;",
        "a&lt;b",
        "5 &gt; 4",
        "&quot;Seen&quot;",
        "It&#39;s so",
        "run &lt;this&gt;",
        "href=\"#first\"",
        "id=\"figure-09\"",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("@import"));
    assert_eq!(text, html(&page));
}
