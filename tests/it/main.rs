mod layers;
mod serve;
