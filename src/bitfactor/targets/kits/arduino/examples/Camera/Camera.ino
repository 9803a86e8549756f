/* Prints the class of each frame and how long it took; written by bitfactor. Copy it before you change it. */
#include <@file@.h>
#include "camera_frame.h"

void setup()
{
    Serial.begin(115200);
}

void loop()
{
    read_frame();
    const unsigned long begun = micros();
    const int32_t found = classify();
    const unsigned long taken = micros() - begun;
    Serial.print("class ");
    Serial.print((long)found);
    Serial.print(" ");
    Serial.print(name_of(found));
    Serial.print(", microseconds ");
    Serial.println(taken);
    delay(1000);
}
