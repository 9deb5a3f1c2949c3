//! What reading evaluations accepts and refuses.

use std::io::Write;

use bear::predict::BpeTokens;
use flate2::{Compression, write::GzEncoder};

use super::*;

fn facts() -> BTreeMap<String, ModelFacts> {
    let facts = ModelFacts { parameters_b: 1.0, max_model_len: 100 };
    [("b".to_owned(), facts), ("a".to_owned(), facts)].into()
}

fn read_text(text: &str) -> Result<Corpus, EvaluationError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    std::fs::write(&path, text).unwrap();
    read(&[path], &facts(), &BpeTokens::built_in(), || {})
}

#[test]
fn rows_are_read_and_models_are_numbered_by_name() {
    let corpus = read_text(concat!(
        r#"{"prompt_id":"1","prompt":"List three birds.","model":"b","score":0.5,"output_tokens":12,"extra":[]}"#,
        "\n\n",
        r#"{"prompt_id":"1","prompt":"List three birds.","model":"a","score":1}"#,
        "\n",
    ))
    .unwrap();
    assert_eq!(corpus.models, ["a", "b"]);
    assert_eq!(corpus.prompts.len(), 1);
    assert_eq!(corpus.rows[0], Row { prompt: 0, model: 1, score: 0.5, output_tokens: Some(12.0) });
    assert_eq!(corpus.rows[1].model, 0);
}

#[test]
fn features_stand_in_for_a_prompt() {
    let tokens = BpeTokens::built_in();
    let described = features::describe("List three birds.", &tokens);
    let row = Evaluation {
        prompt_id: String::from("1"),
        content: Content::Features(Box::new(described.clone())),
        model: String::from("a"),
        score: 0.25,
        output_tokens: None,
        task: None,
        scorer: None,
    };
    assert_eq!(Evaluation::from_json(&row.to_json()).unwrap(), row);
    let corpus = read_text(&row.to_json()).unwrap();
    assert_eq!(corpus.prompts[0].features, described);
    let other = row.to_json().replace(described.version(), "bear.features.v0");
    assert!(read_text(&other).unwrap_err().to_string().contains("bear.features.v0"));
}

#[test]
fn text_and_features_of_one_prompt_agree_in_either_order() {
    let features = serde_json::to_string(&features::describe("Hi there", &BpeTokens::built_in())).unwrap();
    let described = format!(r#"{{"prompt_id":1,"features":{features},"prompt":null,"model":"a","score":0}}"#);
    let text = r#"{"prompt_id":"1","prompt":"Hi there","features":null,"model":"b","score":0}"#;
    for rows in [format!("{described}\n{text}\n{text}"), format!("{text}\n{described}\n{text}")] {
        let corpus = read_text(&rows).unwrap();
        assert_eq!((corpus.prompts.len(), corpus.rows.len()), (1, 3));
        let other = text.replace("Hi there", "Good evening to you");
        let error = read_text(&format!("{rows}\n{other}")).unwrap_err().to_string();
        assert!(error.contains(":4: ") && error.contains("two different prompts"), "{error}");
    }
    let other = text.replace("Hi there", "Good evening to you");
    assert!(read_text(&format!("{described}\n{other}")).unwrap_err().to_string().contains("two different"));
}

#[test]
fn facts_that_cannot_be_are_named() {
    assert_eq!(check_facts(&facts()), Ok(()));
    for (parameters_b, max_model_len, field) in
        [(0.0, 9, "parameters_b"), (-1.0, 9, "parameters_b"), (1.0, 0, "max_model_len")]
    {
        let models = [("c".to_owned(), ModelFacts { parameters_b, max_model_len })].into();
        let error = check_facts(&models).unwrap_err();
        assert_eq!((error.model.as_str(), error.field), ("c", field));
    }
}

#[test]
fn gzip_is_read_by_suffix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl.gz");
    let mut gzip = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
    writeln!(gzip, r#"{{"prompt_id":"1","prompt":"Hi","model":"a","score":0}}"#).unwrap();
    gzip.finish().unwrap();
    let corpus = read(&[path], &facts(), &BpeTokens::built_in(), || {}).unwrap();
    assert_eq!(corpus.rows.len(), 1);
}

#[test]
fn errors_name_file_line_and_field() {
    let good = r#"{"prompt_id":"1","prompt":"Hi","model":"a","score":0}"#;
    for (bad, word) in [
        (r#"{"prompt":"Hi","model":"a","score":0}"#, "`prompt_id` is missing"),
        (r#"{"prompt_id":"2","model":"a","score":0}"#, "not neither"),
        (r#"{"prompt_id":"2","prompt":"Hi","score":0}"#, "`model` is missing"),
        (r#"{"prompt_id":"2","prompt":"Hi","model":"a"}"#, "`score` is missing"),
        (r#"{"prompt_id":"2","prompt":"Hi","model":"a","score":1.5}"#, "outside [0,1]"),
        (r#"{"prompt_id":"2","prompt":"Hi","model":"a","score":"1"}"#, "`score` is text"),
        (r#"{"prompt_id":"2","prompt":"Hi","model":"c","score":1}"#, "which the models file does not have"),
        (r#"{"prompt_id":"2","prompt":"Hi","model":"a","score":1,"output_tokens":-1}"#, "`output_tokens`"),
        (r#"{"prompt_id":"1","prompt":"Ho","model":"a","score":1}"#, "two different prompts"),
        (r#"{"prompt_id":"2","#, "EOF"),
    ] {
        let error = read_text(&format!("{good}\n{bad}\n")).unwrap_err().to_string();
        assert!(error.contains("rows.jsonl:2: ") && error.contains(word), "{error}");
    }
    assert!(read_text("\n").unwrap_err().to_string().contains("no evaluations"));
}
