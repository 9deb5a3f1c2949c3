//! The command line as a whole: consistent, explained, and plain about failures.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
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
