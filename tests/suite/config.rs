//! The configuration as a user meets it: the shipped files, and what a mistake is answered with.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use bear::config::{Config, ConfigError, Flag, Loaded, Place, Sources, Warning, load, parse};
use serde_json::Value;

/// A pool of one model and one instance, to which a test adds its mistake.
const POOL: &str = r#"models:
  - id: small
    parameters_b: 0.6
    max_model_len: 4096
    price: {input_usd_per_mtok: 0.05, output_usd_per_mtok: 0.2}
    prior: {accuracy: 0.5, output_tokens: 100}
instances:
  - id: small-0
    model: small
    url: "http://127.0.0.1:9001"
"#;

fn read(text: &str) -> Result<Loaded, ConfigError> {
    parse(Path::new("bear.yaml"), text)
}

/// Returns what a user reads who made the mistake.
fn refusal(text: &str) -> String {
    match read(text).and_then(Loaded::check) {
        Ok(_) => panic!("taken without complaint:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn the_reference_file_is_the_default_and_shows_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/bear.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(parse(&path, &text).unwrap().config, Config::default());
    // The commented entries of `models` and `instances` are part of the reference, so they must parse.
    let whole = text.replace("models: []\n#", "models:\n#").replace("instances: []\n#", "instances:\n#");
    let whole: String = whole.lines().map(uncomment).collect();
    let config = parse(&path, &whole).unwrap().check().unwrap().config;
    assert_eq!(config.instances[0].snapshots, bear::snapshots::SnapshotConfig::default());
    let given: Value = serde_saphyr::from_str(&whole).unwrap();
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
    let mut missing = Vec::new();
    absent_keys(&schema, &schema, &given, "", &mut missing);
    assert_eq!(missing, Vec::<String>::new(), "keys of the schema that the file does not show");
}

/// Turns the example entries of the two lists into YAML.
fn uncomment(line: &str) -> String {
    let entry = line.strip_prefix("#  ").map(|rest| format!("  {}", rest.replacen("#  ", "  ", 1)));
    entry.unwrap_or_else(|| line.to_owned()).replace("batch_time: null", "batch_time:") + "\n"
}

/// Collects the keys that a schema has and a value has not.
fn absent_keys(root: &Value, schema: &Value, given: &Value, at: &str, missing: &mut Vec<String>) {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    for part in ["allOf", "anyOf", "oneOf"] {
        for option in schema.get(part).and_then(Value::as_array).into_iter().flatten() {
            absent_keys(root, option, given, at, missing);
        }
    }
    if let (Some(items), Some(Value::Array(given))) = (schema.get("items"), given.as_array().map(|_| given)) {
        for (i, item) in given.iter().enumerate() {
            absent_keys(root, items, item, &format!("{at}[{i}]"), missing);
        }
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        match given.get(key) {
            Some(value) => absent_keys(root, property, value, &format!("{at}.{key}"), missing),
            // Null is a section left out, a plain value another form of the same key.
            None if !given.is_object() => {}
            None => missing.push(format!("{at}.{key}")),
        }
    }
}

#[tokio::test]
async fn the_examples_are_whole_pools() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let loaded = load(&Sources { file: Some(path.clone()), ..Sources::default() }).unwrap();
        let checked = loaded.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(!checked.models.is_empty() && !checked.instances.is_empty());
        assert!(
            !checked.warnings.iter().any(|w| !matches!(w, Warning::Uncalibrated { .. })),
            "{:?}",
            checked.warnings
        );
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["kubernetes.yaml", "replicas.yaml", "two-models.yaml"]);
}

#[tokio::test]
async fn a_minimal_pool_is_enough() {
    let checked = read(POOL).unwrap().check().unwrap();
    assert_eq!(checked.models[0].id.as_str(), "small");
    assert_eq!(checked.models[0].prior_output_tokens, Some(100.0));
    assert_eq!(checked.instances[0].price, checked.models[0].price);
    assert_eq!(checked.predictor.version(), "prior");
    assert_eq!(checked.warnings, [Warning::Uncalibrated { instance: "small-0".into() }]);
}

#[tokio::test]
async fn an_unknown_key_is_answered_with_place_and_nearest_key() {
    for (text, place, key, near) in [
        ("routing:\n  lamda_per_usd: 1.0\n", "bear.yaml:2:3", "lamda_per_usd", "lambda_per_usd"),
        ("store: {ulr: x}\n", "bear.yaml:1:9", "ulr", "url"),
        ("telemetri: {}\n", "bear.yaml:1:1", "telemetri", "telemetry"),
        (
            "models:\n  - id: a\n    max_model_length: 3\n",
            "bear.yaml:3:5",
            "max_model_length",
            "max_model_len",
        ),
        ("instances:\n- id: a\n  batch_time: {b0_s: 1, b1s: 2}\n", "bear.yaml:3:25", "b1s", "b1_s"),
    ] {
        let message = refusal(text);
        assert_eq!(message, format!("{place}: unknown key `{key}`; did you mean `{near}`?"));
    }
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_place_and_suggestion() {
    let cases = [
        (
            "routing: {policy: {name: baer}}\n".to_owned() + POOL,
            "bear.yaml:1:26: unknown policy `baer`; did you mean `bear`?",
        ),
        (
            POOL.replace("model: small", "model: smal"),
            "bear.yaml:9:12: unknown model `smal`; did you mean `small`?",
        ),
        (
            POOL.to_owned() + "    snapshots: {source: htpp}\n",
            "bear.yaml:11:25: unknown snapshot source `htpp`; did you mean `http`?",
        ),
        (
            "routing:\n  aliases:\n    gpt: smaal\n".to_owned() + POOL,
            "bear.yaml:3:10: unknown model `smaal`; did you mean `small`?",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(&text), message);
    }
    let options = "routing: {policy: {name: bear, options: {speed: 1}}}\n".to_owned() + POOL;
    assert!(refusal(&options).starts_with("bear.yaml:1:41: "), "{}", refusal(&options));
}

#[tokio::test]
async fn a_value_that_cannot_be_is_answered_with_its_place() {
    for (from, to, at, part) in [
        ("0.6", "-0.6", "bear.yaml:3:19", "models.0.parameters_b"),
        ("accuracy: 0.5", "accuracy: 50", "bear.yaml:6:23", "between 0 and 1"),
        ("0.05", ".nan", "bear.yaml:5:33", "input_usd_per_mtok"),
        ("http://127.0.0.1:9001", "127.0.0.1:9001", "bear.yaml:10:10", "http://10.0.0.7:8000"),
        ("http://127.0.0.1:9001", "http://h:8000/v1/", "bear.yaml:10:10", "without /v1"),
        ("http://127.0.0.1:9001", "http://u:hunter2@h", "bear.yaml:10:10", "http://u:***@h"),
        ("id: small\n", "id: auto\n", "bear.yaml:2:9", "routing.virtual_model"),
        ("4096", "many", "bear.yaml:4:20", ""),
    ] {
        let message = refusal(&POOL.replace(from, to));
        assert!(message.starts_with(&format!("{at}: ")) && message.contains(part), "{message}");
    }
    let twice = POOL.to_owned() + "  - {id: small-0, model: small, url: \"http://b\"}\n";
    assert_eq!(refusal(&twice), "bear.yaml:11:10: instance `small-0` is there twice; give each its own id");
    assert!(refusal("models: [\n").starts_with("bear.yaml:"), "{}", refusal("models: [\n"));
    assert!(refusal("").contains("models"), "{}", refusal(""));
    let queue = "store: {url: \"mysql://x\"}\n".to_owned() + POOL;
    assert!(refusal(&queue).starts_with("bear.yaml:1:14: no store for `mysql://x`"), "{}", refusal(&queue));
}

/// What `bear serve` would trip over, a check finds first, at its place.
#[tokio::test]
async fn what_serving_needs_is_checked() {
    for (section, at, part) in [
        ("upstream: {idle_timeout_s: 0}", "1:28", "upstream.idle_timeout_s"),
        ("upstream: {pool_idle_s: -1}", "1:25", "upstream.pool_idle_s"),
        ("upstream: {authorization: {env: BEAR_NO_SUCH_SECRET}}", "1:27", "BEAR_NO_SUCH_SECRET"),
        ("pool: {assumed_max_num_seqs: 0}", "1:30", "pool.assumed_max_num_seqs"),
        ("listen: {max_body_mib: 0}", "1:24", "listen.max_body_mib"),
        ("store: {queue_mib: 0}", "1:20", "store.queue_mib"),
    ] {
        let message = refusal(&format!("{section}\n{POOL}"));
        assert!(message.starts_with(&format!("bear.yaml:{at}: ")) && message.contains(part), "{message}");
    }
    let secret = refusal(&format!("upstream: {{authorization: {{file: no/key}}}}\n{POOL}"));
    assert!(secret.contains(&std::path::absolute("no/key").unwrap().display().to_string()), "{secret}");
    let files = POOL.replace("    prior:", "    tokenizer: {files: no/such}\n    prior:");
    let message = refusal(&files);
    let tried = std::path::absolute("no/such/tokenizer.json").unwrap();
    assert!(message.starts_with("bear.yaml:6:24: "), "{message}");
    assert!(message.contains(&tried.display().to_string()), "{message}");
}

fn overridden(variables: &[(&str, &str)], flags: Vec<Flag>) -> Result<Loaded, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bear.yaml");
    std::fs::write(&file, "store: {queue: 7, keep_prompts: true}\n".to_owned() + POOL).unwrap();
    let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    load(&Sources { file: Some(file), environment, flags })
}

#[tokio::test]
async fn flags_win_over_the_environment_and_that_over_the_file() {
    let flag = |value: &str| Flag { name: "--store", key: "store.url", value: value.into() };
    let environment = [
        ("BEAR__STORE__URL", "sqlite://environment.db"),
        ("BEAR__STORE__QUEUE", "9"),
        ("BEAR__TELEMETRY__LOG", "debug"),
        ("BEAR__ROUTING__DEFAULT_TTFT_TARGET_MS", "250"),
        ("BEAR__INSTANCES__SMALL_0__URL", "http://10.0.0.1:1"),
        ("BEAR__MODELS__0__PRIOR__ACCURACY", "0.25"),
        ("BEAR_DATA", "not ours"),
    ];
    let loaded = overridden(&environment, vec![flag("sqlite://flag.db")]).unwrap();
    let config = &loaded.config;
    assert_eq!(config.store.url.as_deref(), Some("sqlite://flag.db"));
    assert_eq!((config.store.queue, config.store.keep_prompts), (9, true));
    assert_eq!(config.telemetry.log, "debug");
    assert_eq!(config.routing.default_ttft_target_ms, Some(250.0));
    assert_eq!(config.instances[0].url, "http://10.0.0.1:1");
    assert_eq!(config.models[0].prior.accuracy, Some(0.25));
    assert_eq!(loaded.place("store.url"), Place::Flag("--store".into()));
    assert_eq!(loaded.place("store.queue"), Place::Environment("BEAR__STORE__QUEUE".into()));
    assert!(matches!(loaded.place("store.keep_prompts"), Place::File { line: 1, column: 33, .. }));
    let off = overridden(&[("BEAR__STORE__URL", "null")], Vec::new()).unwrap();
    assert_eq!(off.config.store.url, None);
}

#[tokio::test]
async fn a_mistake_in_the_environment_names_the_variable() {
    let refused = |name, value| overridden(&[(name, value)], Vec::new()).and_then(Loaded::check).unwrap_err();
    let message = refused("BEAR__STORE__ULR", "x").to_string();
    assert_eq!(message, "environment variable BEAR__STORE__ULR: unknown key `ulr`; did you mean `url`?");
    let message = refused("BEAR__STORE__QUEUE", "lots").to_string();
    assert!(message.starts_with("environment variable BEAR__STORE__QUEUE: "), "{message}");
    let message = refused("BEAR__ROUTING__POLICY__NAME", "round-robbin").to_string();
    assert!(
        message.contains("BEAR__ROUTING__POLICY__NAME") && message.contains("`round-robin`"),
        "{message}"
    );
}

#[tokio::test]
async fn a_missing_file_and_a_missing_bundle_are_named() {
    let missing = load(&Sources { file: Some("no/such.yaml".into()), ..Sources::default() }).unwrap_err();
    assert!(missing.to_string().contains("no/such.yaml"), "{missing}");
    let bundle = refusal(&("predictors:\n  bundle: no/such/bundle\n".to_owned() + POOL));
    let tried = std::path::absolute("no/such/bundle").unwrap();
    let said = format!("bear.yaml:2:11: cannot read the bundle file {} ", tried.display());
    assert!(bundle.starts_with(&said), "{bundle}");
}

#[tokio::test]
async fn a_synthetic_bundle_serves_only_where_the_operator_says_so() {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    let section = format!("predictors:\n  bundle: {}\n", bundle.display());
    let refused = refusal(&(section.clone() + POOL));
    for part in ["bear.yaml:2:11: ", "synthetic", "bear-train", "predictors.allow_synthetic: true"] {
        assert!(refused.contains(part), "no `{part}` in {refused}");
    }
    let allowed = read(&(section + "  allow_synthetic: true\n" + POOL)).unwrap().check().unwrap();
    assert!(allowed.predictor.is_synthetic() && allowed.predictor.knows("qwen3-8b"));
    assert_eq!(allowed.warnings.len(), 1, "the prior covers the model that the bundle does not know");
}

#[tokio::test]
async fn a_broken_bundle_is_named_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    for entry in std::fs::read_dir(demo).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(folder.path().join("accuracy.txt"), "tree\n").unwrap();
    let section = format!("predictors: {{bundle: {:?}, allow_synthetic: true}}\n", folder.path());
    let message = refusal(&(section + POOL));
    assert!(message.starts_with("bear.yaml:1:22: ") && message.contains("accuracy.txt"), "{message}");
}
