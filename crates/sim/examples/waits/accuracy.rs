//! todo

use std::error::Error;

pub fn main(_arguments: &[String]) -> Result<(), Box<dyn Error>> {
    Ok(())
}
