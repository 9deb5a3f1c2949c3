//! What the demo tells a person to try: every command can be pasted as it stands.

use std::{
    env,
    fmt::{self, Write as _},
    path::{Path, PathBuf},
};

/// The running program, written so that a shell in this folder finds it.
pub(super) struct Program(String);

impl Program {
    /// Returns the program that runs this.
    pub(super) fn running() -> Self {
        let Ok(program) = env::current_exe() else { return Self("bear".to_owned()) };
        let here = env::current_dir().unwrap_or_default();
        Self(quoted(&as_seen_from(&here, program)))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a path relative to a folder above it, else unchanged.
fn as_seen_from(folder: &Path, path: PathBuf) -> PathBuf {
    match path.strip_prefix(folder) {
        // A lone name would be looked for on the search path.
        Ok(below) if !folder.as_os_str().is_empty() => Path::new(".").join(below),
        _ => path,
    }
}

/// Returns a path as a shell takes it.
pub(super) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:@".contains(c)) {
        return path;
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// Writes what to try on a router at `url`; nothing in a command is indented.
pub(super) fn commands(url: &str) -> String {
    let program = Program::running();
    let mut text = String::new();
    _ = write!(
        text,
        "Try next, in another terminal in this folder:\n\n\
         curl -iN {url}/v1/chat/completions -H 'content-type: application/json' -H 'x-slo-ttft-ms: 200' \\\n\
         -d '{{\"model\":\"auto\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Explain tides.\"}}]}}'\n\n\
         {program} route --url {url} --ttft-ms 200 \"Write a story.\"   # what it would decide, sending nothing\n\
         curl {url}/metrics   # what Prometheus sees\n\n\
         Or in Python, after pip install openai:\n\n\
         from openai import OpenAI\n\
         client = OpenAI(base_url=\"{url}/v1\", api_key=\"none\")\n\
         answer = client.chat.completions.create(model=\"auto\", messages=[{{\"role\": \"user\", \"content\": \
         \"Explain tides.\"}}], extra_headers={{\"x-slo-ttft-ms\": \"200\"}})\n\
         print(answer.model, answer.choices[0].message.content)\n"
    );
    text
}

/// Writes how to read what became of a request.
pub(super) fn explain(request_id: &str, store_url: &str) -> String {
    format!("{} explain {request_id} --store {}", Program::running(), quoted(Path::new(store_url)))
}

/// Returns what to do about a port in use.
pub(super) fn other_port(port: u16) -> String {
    let other = if port < u16::MAX { port + 1 } else { 8080 };
    format!(
        "port {port} is in use by another program (hint: stop it, or choose another port: bear demo --port \
         {other}, or make demo ARGS=\"--port {other}\"; 0 takes any free one)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_below_the_folder_is_named_from_there() {
        let seen = |folder: &str| as_seen_from(Path::new(folder), "/home/me/bear/target/release/bear".into());
        assert_eq!(seen("/home/me/bear"), Path::new("./target/release/bear"));
        assert_eq!(seen("/home/you"), Path::new("/home/me/bear/target/release/bear"));
        assert_eq!(seen(""), Path::new("/home/me/bear/target/release/bear"));
    }

    #[test]
    fn odd_paths_are_quoted() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/my files/it's")), r"'/my files/it'\''s'");
    }

    #[test]
    fn commands_can_be_pasted() {
        let text = commands("http://127.0.0.1:8080");
        assert!(text.lines().all(|line| !line.starts_with(' ')), "{text}");
        assert!(text.contains("-H 'content-type: application/json'"));
        assert!(
            explain("abc", "sqlite:///tmp/x/bear.db")
                .ends_with(" explain abc --store sqlite:///tmp/x/bear.db")
        );
    }

    #[test]
    fn a_port_in_use_is_said_with_what_to_do() {
        let hint = other_port(8080);
        assert!(hint.contains("port 8080") && hint.contains("make demo ARGS=\"--port 8081\""), "{hint}");
        assert!(other_port(u16::MAX).contains("--port 8080"));
    }
}
