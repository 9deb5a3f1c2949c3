//! Builds again when a migration changes: the store embeds them, and cargo does not see that by itself.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
