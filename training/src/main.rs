//! `bear-train`: the command line of the trainer.

fn main() {
    eprintln!("bear-train: no subcommand is built in yet");
    std::process::exit(2);
}
