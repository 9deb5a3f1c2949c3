//! The command line as a whole: consistent, explained, and plain about failures.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn values_that_cannot_be_are_wrong_usage() {
    for line in [
        "demo --qps 0",
        "demo --seconds -1",
        "engine --time-scale 0",
        "engine --time-scale inf",
        "engine --profile nope",
    ] {
        let arguments = std::iter::once("bear").chain(line.split(' '));
        let error = Cli::try_parse_from(arguments).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
    }
    let error = Cli::try_parse_from(["bear", "engine", "--profile", "nope"]).unwrap_err().to_string();
    assert!(error.contains("qwen3-8b-h100"), "{error}");
}

#[test]
fn every_subcommand_and_option_says_what_it_does() {
    fn check(command: &clap::Command) {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "`{name}` has no help");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "`{name}`: {:?} has no help", argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    let mut command = Cli::command();
    command.build();
    check(&command);
}
